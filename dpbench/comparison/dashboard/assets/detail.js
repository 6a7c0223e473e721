// One record: its facts, the command that reproduces it, its JSON; and several runs side by side.

/** Stands for a record in the address where the chosen runs are compared. */
const COMPARED = "compared";

const MOST_NAMED = 6;

/** A command, and a button that copies it. */
function commandLine(text) {
  const code = make("code", text);
  const copy = button("Copy", () => {
    getSelection().selectAllChildren(code);
    document.execCommand("copy"); // navigator.clipboard is missing over plain HTTP
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  return make("div.command", code, copy);
}

/** JSON with indentation, and a list without others in it on one line. */
const indented = (record) =>
  JSON.stringify(record, null, 2).replace(/\[[^[\]{}]*\]/g, (list) => list.replace(/\n */g, " "));

/** The record's JSON, if there was room for it. */
function recordElement(row) {
  const node = make("pre", { tabIndex: 0, role: "region", "aria-label": "record" }, "…");
  packed("records").then(({ [row.id]: record }) => {
    const missing = `Not whole in this page; it is in ${row.facts.file}.`;
    node.textContent = record ? indented(record) : missing;
  });
  return node;
}

/** What the dialog shows about a run. */
function detail(row) {
  const term = ([name, text]) => [make("dt", name), make("dd", text)];
  const metrics = data.metrics
    .filter((metric) => measured(metric)(row) !== null)
    .map((metric) => `${metric.name} ${valueText(measured(metric)(row), metric)}`);
  const facts = { ...row.facts, metrics: metrics.join(", ") || "none" };
  return [
    heading(row.name),
    make("p.sub", `${row.facet}, seed ${row.seed}`),
    otherSeeds(row),
    make("p.seeds", chooseButton(row)),
    row.command ? commandLine(row.command) : empty(`No command: ${row.no_command}`),
    make("dl", Object.entries(facts).flatMap(term)),
    lossCurves([row]),
    row.bins ? diagram(`reliability diagram of ${nameAndSeed(row)}`, row) : "",
    make("h3", "Record"),
    recordElement(row),
  ];
}

const heading = (text) =>
  make(
    "header",
    make("h2", { id: "detail-title" }, text),
    button("Close", () => choose({ run: "" }), { className: "close" }),
  );

/** Links to the runs that differ only in the seed, if there are any. */
function otherSeeds(row) {
  const alike = data.rows.filter((other) => other.group === row.group);
  if (alike.length < 2) return "";
  const pressed = (other) => ({ "aria-pressed": String(other === row) });
  const buttons = alike
    .sort((a, b) => byNumber(a.seed, b.seed))
    .map((other) => button(other.seed, () => choose({ run: other.id }), pressed(other)));
  return make("p.seeds", "Seeds: ", buttons);
}

const nameAndSeed = (row) => `${row.name}, seed ${row.seed}`;

/** The chosen runs, in the order of the page. */
const chosenRows = () => data.rows.filter(({ id }) => view.chosen?.includes(id));

/** Choose a run for comparison, or leave it out again. */
function toggle({ id }) {
  const chosen = new Set(view.chosen);
  if (!chosen.delete(id)) chosen.add(id);
  choose({ chosen: chosen.size ? [...chosen] : null });
}

function chooseButton(row) {
  const chosen = view.chosen?.includes(row.id);
  return button(chosen ? "Leave out of the comparison" : "Choose for comparison", () =>
    toggle(row),
  );
}

/** The bar that says which runs are chosen. */
function chosenBar() {
  const rows = chosenRows();
  at("chosen").hidden = !rows.length;
  const drop = (row) => {
    const properties = { "aria-label": `Leave out ${nameAndSeed(row)}` };
    return button(`${nameAndSeed(row)} ×`, () => toggle(row), properties);
  };
  at("chosen").replaceChildren(
    make("b", `${rows.length} chosen`),
    ...rows.slice(0, MOST_NAMED).map(drop),
    rows.length > MOST_NAMED ? `and ${rows.length - MOST_NAMED} more` : "",
    button("Compare", () => choose({ run: COMPARED }), { disabled: rows.length < 2 }),
    button("Clear", () => choose({ chosen: null })),
  );
}

/** What differs between runs: settings, facts and metrics; then curves and diagrams. */
function comparison(rows) {
  const values = (row) => {
    const metrics = data.metrics.map((one) => [one.title, valueText(measured(one)(row), one)]);
    const facts = Object.entries(row.facts).filter(([name]) => name !== "file");
    const own = { "data set · model": row.facet, method: data.methods[row.method] };
    const settings = Object.entries({ ...own, ...data.settings[row.group], seed: row.seed });
    return new Map([...settings, ...facts, ...metrics]);
  };
  const columns = rows.map(values);
  const names = new Set(columns.flatMap((column) => [...column.keys()]));
  const lines = [...names]
    .map((name) => [name, ...columns.map((column) => column.get(name) ?? "–")])
    .filter(([, first, ...others]) => others.some((text) => text !== first))
    .map((cells) => ({ cells }));
  const diagrams = rows
    .filter((row) => row.bins)
    .map((row) => diagram(`reliability diagram of ${nameAndSeed(row)}`, row));
  const title = `${rows.length} runs side by side`;
  return [
    heading(title),
    grid(["", ...rows.map(nameAndSeed)], lines, title),
    lossCurves(rows),
    make("div.pair", diagrams),
  ];
}

/** The loss curves of runs in one picture; nothing where none has one. */
function lossCurves(rows) {
  if (!rows.some(({ losses: [, values] }) => values.length > 1)) return "";
  const label = "training loss by epoch";
  const series = rows.map((row, i) => ({ ...row, dash: dashOf(i), text: nameAndSeed(row) }));
  const trace = ({ method, dash, losses: [every, values] }) => ({
    type: "scatter",
    mode: values.length > 1 ? "lines" : "markers",
    x: values.map((_, place) => every * (place + 1)),
    y: values,
    line: { color: colour(lookOf(method).colour), dash, width: 2 },
    hovertemplate: "epoch %{x}<br>loss %{y:.4g}<extra></extra>",
  });
  const layout = { xaxis: titled("epoch"), yaxis: titled("training loss") };
  const describe = () => ({ traces: series.map(trace), layout });
  const said = () => rows.map((row) => `${row.facet}, ${nameAndSeed(row)}, ${epsilonText(row)}`);
  return card("Training loss", label, "loss", describe, { above: legend(series), said });
}

/** Are its confidences right? Accuracy in each bin of confidence, and the share of its examples. */
const diagram = (label, run) =>
  picture(label, "diagram", () => {
    const unit = { range: [0, 1], tickvals: [0, 0.5, 1] };
    const examples = run.bins.reduce((sum, [count]) => sum + count, 0);
    const bar = colour(lookOf(run.method).colour);
    return {
      traces: [
        barTrace(run, ([count, , right]) => right / count, bar),
        diagonalTrace(0, 1),
        { ...barTrace(run, ([count]) => count / examples, colour("muted")), yaxis: "y2" },
      ],
      layout: {
        xaxis: titled("confidence", { ...unit, anchor: "y2" }),
        yaxis: titled("accuracy", { ...unit, domain: [0.34, 1] }),
        yaxis2: titled("share", { domain: [0, 0.24], nticks: 3 }),
        bargap: 0,
      },
    };
  });

function barTrace({ bins }, height, color) {
  const drawn = bins.map((bin, i) => ({ bin, i })).filter(({ bin: [count] }) => count);
  const text = ([count, confidence, right]) =>
    `confidence ${figures(confidence / count)}<br>accuracy ${figures(right / count)}<br>` +
    `${count} examples`;
  return {
    type: "bar",
    x: drawn.map(({ i }) => (i + 0.5) / bins.length),
    y: drawn.map(({ bin }) => height(bin)),
    width: 1 / bins.length,
    hoverinfo: "text",
    hovertext: drawn.map(({ bin }) => text(bin)),
    marker: { color, line: { color: colour("card"), width: 1 } },
  };
}
