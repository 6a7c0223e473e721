// The table of runs: sorted by a column, searched, a page at a time, and saved as CSV or LaTeX.

function runList(rows) {
  const names = new Set([view.metric, "test/ece"]);
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
  const lines = rows.map((row) => ({ row, cells: cells(row), more: () => wordsOf(row) }));
  const table = sortable(head, lines, `${rows.length} runs`, true);
  const text = (suffix) =>
    suffix === "csv"
      ? csvOf(runLines(table.chosen(), metrics))
      : latexOf([head, ...table.chosen().map((line) => line.cells.map(textOf))]);
  searched = table;
  table.search(at("find").value);
  return [make("div.tools", textExports(text, "runs")), table.node];
}

/** The table of runs, which the search of the page is for. */
let searched = null;

/** What a run is also found by: its method's name in commands, its tables, file and settings. */
const wordsOf = (row) => [
  row.method,
  row.tables,
  row.facts.file,
  ...Object.entries(data.settings[row.group]).map(([name, value]) => `${name}=${value}`),
];

/** Show what contains all words: runs, and published pages by their title and their command. */
function find(text) {
  const wanted = wordsIn(text);
  searched?.search(text);
  let pages = 0;
  for (const node of document.querySelectorAll("details.card[data-words]")) {
    node.hidden = !wanted.every((word) => node.dataset.words.includes(word));
    pages += !node.hidden;
  }
  const runs = searched?.chosen().length ?? 0;
  at("hits").textContent = wanted.length ? `${runs} runs, ${pages} pages` : "";
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
