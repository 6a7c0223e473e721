// The table of runs: sorted by a column, searched, a page at a time, and saved as CSV or LaTeX.

function runList(rows) {
  const names = new Set([view.metric, view.fairness, view.calibration]);
  const metrics = [...names].map(metricOf).filter((metric) => metric);
  const values = metrics.map(measured);
  const cells = (row) => [
    { text: row.id, run: row.id, kind: "code" },
    row.facet,
    row.name,
    row.seed,
    { text: row.epsilon[view.accountant], sort: row.axis[view.accountant] },
    ...values.map((value, i) => ({ text: valueText(value(row), metrics[i]), sort: value(row) })),
    row.status,
  ];
  const labels = metrics.map((metric) => metric.title);
  const head = ["record", "data set · model", "method", "seed", "ε", ...labels, "status"];
  const lines = rows.map((row) => ({ row, cells: cells(row) }));
  const table = sortable(head, lines, `${rows.length} runs`, true);
  const text = (suffix) =>
    suffix === "csv"
      ? csvOf(runLines(table.chosen(), metrics))
      : latexOf([head, ...table.chosen().map((line) => line.cells.map(textOf))]);
  const label = "Search runs";
  const oninput = (event) => table.search(event.target.value);
  const properties = { type: "search", placeholder: label, "aria-label": label, oninput };
  return [make("div.tools", make("input", properties), textExports(text, "runs")), table.node];
}

/** Runs for a program: exact numbers, all epsilons, and a column for each setting. */
function runLines(lines, metrics) {
  const settings = Object.keys(lines.length ? data.settings[lines[0].row.group] : {});
  const budgets = Object.keys(data.accountants);
  const fields = ({ row }) => [
    ...[row.id, row.facet, row.method, row.seed, row.status],
    ...metrics.map((metric) => measured(metric)(row)),
    ...budgets.map((name) => row.axis[name]),
    ...settings.map((name) => data.settings[row.group][name]),
  ];
  const head = ["record", "data set · model", "method", "seed", "status"];
  const names = metrics.map((metric) => metric.name);
  const heads = [...head, ...names, ...budgets.map((name) => `ε, ${name}`), ...settings];
  return [heads, ...lines.map(fields)].map((line) => line.map((field) => String(field ?? "")));
}
