// The papers' tables with our numbers, the list of runs, and the files that were left out.

const VERDICTS = {
  reproduced: ["good", "✓"],
  close: ["near", "≈"],
  differs: ["bad", "✗"],
  holds: ["good", "✓"],
  "does not hold": ["bad", "✗"],
  undecided: ["near", "?"],
};
const mark = (verdict) => VERDICTS[verdict] ?? ["none", "·"];

/** One card per table that was run; the others are in a collapsed list. */
function tableCards(tables) {
  const run = tables.filter((table) => !table.verdicts["not run"]);
  const not = tables.filter((table) => table.verdicts["not run"]);
  return [
    ...run.map(tableCard),
    not.length
      ? make(
          "details",
          { className: "card" },
          make("summary", {}, `Published tables that were not run: ${not.length}`),
          not.map(tableCard),
        )
      : null,
    tables.length ? null : empty("The results folder contains no tables."),
  ].filter((node) => node);
}

function tableCard(table) {
  return make(
    "article",
    { className: "card wide" },
    make("h3", {}, table.title),
    claims(table),
    tally(table),
    table.command
      ? commandLine(table.command)
      : make(
          "p",
          { className: "sub" },
          "Made with other settings, or in part: the file name does not give the command.",
        ),
    publishedTable(table),
  );
}

/** The cells of a table: rows are methods, each with ours and the published value. */
function publishedTable(table) {
  const cells = new Map(table.cells.map((cell) => [`${cell.row}\n${cell.column}`, cell]));
  const heads = table.columns.map((column) => make("th", { scope: "col" }, column));
  const line = (row) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, row),
      table.columns.map((column) => tableCell(cells.get(`${row}\n${column}`))),
    );
  return make(
    "div",
    { className: "scroll", tabIndex: 0, role: "region", "aria-label": table.title },
    make(
      "table",
      { className: "published" },
      make("thead", {}, make("tr", {}, make("td", {}), heads)),
      make("tbody", {}, table.rows.map(line)),
    ),
  );
}

/** The paper's claims about the rows, with their verdicts. */
function claims(table) {
  const item = (claim) => {
    const [kind, sign] = mark(claim.verdict);
    return make(
      "li",
      {},
      make("span", { className: `verdict ${kind}` }, `${sign} ${claim.verdict}`),
      ` ${claim.statement}`,
    );
  };
  return table.claims.length ? make("ul", { className: "claims" }, table.claims.map(item)) : null;
}

/** The number of cells per verdict, as a bar and in words. */
function tally(table) {
  const verdicts = Object.entries(table.verdicts).filter(([name]) => name !== "-");
  const part = ([name, count]) => {
    const node = make("span", { className: mark(name)[0] });
    node.style.flexGrow = count;
    return node;
  };
  return make(
    "div",
    {},
    make("div", { className: "bar", "aria-hidden": "true" }, verdicts.map(part)),
    make(
      "p",
      { className: "sub" },
      verdicts.map(([name, count]) => `${count} ${name}`).join(" · "),
    ),
  );
}

function tableCell(cell) {
  if (!cell) return make("td", {});
  const [kind, sign] = mark(cell.verdict);
  const digits = Math.max((cell.published.split(".")[1] ?? "").length, cell.published ? 0 : 3);
  const ours =
    cell.ours === ""
      ? "–"
      : pair(rounded(cell.ours, digits), rounded(cell.spread, digits)) +
        (cell.n ? ` (${cell.n})` : "");
  const published = cell.published ? `[${pair(cell.published, cell.published_spread)}]` : "";
  return make(
    "td",
    { className: `cell ${kind}`, title: cell.verdict },
    make("span", { className: "ours" }, ours),
    make("span", { className: "theirs" }, published),
    make("span", { className: "verdict" }, cell.verdict === "-" ? "" : `${sign} ${cell.verdict}`),
  );
}

const pair = (value, spread) => (spread ? `${value} ± ${spread}` : value);
const rounded = (text, digits) =>
  text !== "" && Number.isFinite(Number(text)) ? Number(text).toFixed(digits) : text;

const FIRST_RUNS = 50;

/** All selected runs, with links to their records. */
function runList(rows, metric, page) {
  const { accountant } = page.state;
  const index = page.data.metrics.indexOf(metric);
  const ordered = [...rows].sort(
    (a, b) =>
      byNumber(a.facet, b.facet) ||
      byNumber(a.method, b.method) ||
      byNumber(epsilonText(a, accountant), epsilonText(b, accountant)) ||
      byNumber(a.seed, b.seed),
  );
  const line = (row) => [
    button(row.id, () => page.open(row.id), { className: "link code" }),
    row.facet,
    nameOf(row),
    row.seed,
    epsilonText(row, accountant),
    valueText(row.metrics[index], metric),
    row.status,
  ];
  const heads = ["record", "data set · model", "method", "seed", "epsilon", metric.label, "status"];
  const table = (some) => grid(heads, some.map(line), `${rows.length} runs`);
  return shortTable(ordered, table);
}

/** The table of the first rows, and a button that shows it of all. */
function shortTable(rows, table) {
  const short = table(rows.slice(0, FIRST_RUNS));
  if (rows.length <= FIRST_RUNS) return [short];
  const more = button(`Show ${rows.length - FIRST_RUNS} more runs`, () => {
    short.replaceWith(table(rows));
    more.remove();
  });
  return [short, more];
}

function unreadable(files) {
  return [
    make(
      "ul",
      { className: "files" },
      files.map(([source, why]) => make("li", {}, make("code", {}, source), ` ${why}`)),
    ),
  ];
}
