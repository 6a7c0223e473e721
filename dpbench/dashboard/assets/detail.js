// One record: what it says, the command that makes it again, and its JSON.

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

let texts = null;

/** The text of a record, if there was room for it; all of them are unpacked once. */
async function recordText(id) {
  texts ??= unpacked("records");
  return (await texts)[id];
}

const timeText = (row) =>
  `${figures(row.ms)} ms per step of ${figures(row.steps ?? "–", 6)} steps; ` +
  [row.machine, ...row.how].join(", ");

function auditText({ epsilon, confidence }) {
  const more = confidence === null ? "" : `, confidence ${figures(confidence)}`;
  return `at least ${figures(epsilon)}${more}`;
}

/** What the dialog shows of a row. */
function detail(row, page) {
  const alike = page.data.rows.filter((other) => other.group === row.group);
  const record = make("pre", { tabIndex: 0, role: "region", "aria-label": "record" }, "…");
  recordText(row.id).then(
    (text) =>
      (record.textContent =
        text ??
        `There are too many records for this page to hold them all; this one is ${row.source}.`),
  );
  const facts = [
    [
      "epsilon",
      Object.entries(page.data.accountants)
        .map(([name, text]) => `${text}: ${epsilonText(row, name)}`)
        .join("; "),
    ],
    ["guarantee", row.why ? `${row.guarantee}. ${row.why}` : row.guarantee],
    ["δ", row.delta === null ? "–" : figures(row.delta)],
    ["adjacency", row.adjacency],
    ["holds in arithmetic", row.arithmetic],
    [
      "status",
      row.dropped
        ? `${row.status}; ${row.dropped} gradients were not finite and counted as zero`
        : row.status,
    ],
    ["time", row.ms === null ? "–" : timeText(row)],
    ["audit", row.audit ? auditText(row.audit) : "none"],
    ["file", row.source],
  ];
  return [
    make(
      "header",
      {},
      make("h2", { id: "detail-title" }, nameOf(row)),
      button("Close", () => page.open(""), { className: "close" }),
    ),
    make("p", { className: "sub" }, `${row.facet}, seed ${row.seed}`),
    alike.length > 1
      ? make(
          "p",
          { className: "seeds" },
          "Seeds: ",
          alike
            .sort((a, b) => byNumber(a.seed, b.seed))
            .map((other) =>
              button(other.seed, () => page.open(other.id), {
                "aria-pressed": String(other === row),
              }),
            ),
        )
      : null,
    row.command ? commandLine(row.command) : empty(`No command: ${row.no_command}`),
    make(
      "dl",
      {},
      facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]),
    ),
    make("h3", {}, "Record"),
    record,
  ].filter((node) => node);
}
