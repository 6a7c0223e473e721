// One record: its facts, the command that reproduces it, and its JSON.

/** A command, and a button that copies it. */
function commandLine(text) {
  const code = make("code", {}, text);
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  return make("div", { className: "command" }, code, copy);
}

let records = null;

/** A record, if there was room for it; all are unpacked at once, on first use. */
async function recordOf(id) {
  records ??= unpacked("records");
  return (await records)[id];
}

/** JSON with indentation, and each list on one line. */
function indented(node, margin = "") {
  if (Array.isArray(node)) return `[${node.map((part) => indented(part)).join(", ")}]`;
  if (node === null || typeof node !== "object") return JSON.stringify(node);
  const inner = `${margin}  `;
  const lines = Object.entries(node).map(
    ([name, part]) => `${inner}${JSON.stringify(name)}: ${indented(part, inner)}`,
  );
  return lines.length ? `{\n${lines.join(",\n")}\n${margin}}` : "{}";
}

const timeText = (row) =>
  `${figures(row.ms)} ms per step of ${figures(row.steps ?? "–", 6)} steps; ` +
  [row.machine, ...row.execution].join(", ");

function auditText({ epsilon, confidence }) {
  const more = confidence === null ? "" : `, confidence ${figures(confidence)}`;
  return `at least ${figures(epsilon)}${more}`;
}

/** What the dialog shows about a row. */
function detail(row, page) {
  const other = page.data.rows.find((one) => one.id === page.state.with && one !== row);
  return [
    make(
      "header",
      {},
      make("h2", { id: "detail-title" }, nameOf(row)),
      button("Close", () => page.open(""), { className: "close" }),
    ),
    make("p", { className: "sub" }, `${row.facet}, seed ${row.seed}`),
    otherSeeds(row, page),
    compareControl(row),
    ...(other ? comparison(row, other) : []),
    row.command ? commandLine(row.command) : empty(`No command: ${row.no_command}`),
    make(
      "dl",
      {},
      facts(row, page).flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]),
    ),
    other ? null : lossCurves([row]),
    make("h3", {}, "Record"),
    recordElement(row),
  ].filter((node) => node);
}

/** Links to the runs that differ only in the seed, if there are any. */
function otherSeeds(row, page) {
  const alike = page.data.rows.filter((other) => other.group === row.group);
  if (alike.length < 2) return null;
  const buttons = alike
    .sort((a, b) => byNumber(a.seed, b.seed))
    .map((other) =>
      button(other.seed, () => page.open(other.id), { "aria-pressed": String(other === row) }),
    );
  return make("p", { className: "seeds" }, "Seeds: ", buttons);
}

/** Names and values of the facts that a record gives about its run. */
function facts(row, page) {
  const epsilons = Object.entries(page.data.accountants).map(
    ([name, text]) => `${text}: ${epsilonText(row, name)}`,
  );
  const nonfinite = `${row.nonfinite} gradients were not finite and counted as zero`;
  return [
    ["epsilon", epsilons.join("; ")],
    ["guarantee", row.why ? `${row.guarantee}. ${row.why}` : row.guarantee],
    ["on the data", row.notes || "–"],
    ["δ", row.delta === null ? "–" : figures(row.delta)],
    ["adjacency", row.adjacency],
    ["holds in arithmetic", row.arithmetic],
    ["status", row.nonfinite ? `${row.status}; ${nonfinite}` : row.status],
    ["time", row.ms === null ? "–" : timeText(row)],
    ["audit", row.audit ? auditText(row.audit) : "none"],
    ["metrics", metricsText(row) || "none"],
    ["file", row.source],
  ];
}

const metricsText = (row) =>
  data.metrics
    .map(({ name, percent }, i) => [name, row.metrics[i], percent])
    .filter(([, value]) => value !== null)
    .map(([name, value, percent]) => `${name} ${valueText(value, { percent })}`)
    .join(", ");

/** The record's JSON, filled in once it is unpacked. */
function recordElement(row) {
  const node = make("pre", { tabIndex: 0, role: "region", "aria-label": "record" }, "…");
  const missing = `Not whole in this page; it is in ${row.source}.`;
  recordOf(row.id).then((record) => {
    node.textContent = record ? indented(record) : missing;
  });
  return node;
}
