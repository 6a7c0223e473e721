// The papers' tables with our numbers, the list of runs, and the files that were left out.

const VERDICTS = {
  reproduced: ["good", "✓"],
  differs: ["bad", "✗"],
  holds: ["good", "✓"],
  "holds on average": ["near", "✓"],
  "does not hold": ["bad", "✗"],
  undecided: ["near", "?"],
};
const mark = (verdict) => VERDICTS[verdict] ?? ["none", "·"];

/** One card per table that was run; the others are in a collapsed list. */
function tableCards(tables) {
  const run = tables.filter((table) => !table.verdicts["not run"]);
  const not = tables.filter((table) => table.verdicts["not run"]);
  const rest = () => not.map(tableCard);
  return [
    ...run.map(tableCard),
    not.length ? folded([`Published tables that were not run: ${not.length}`], rest) : null,
    tables.length ? null : empty("The results folder contains no tables."),
  ].filter((node) => node);
}

/** A card that is filled when it is first opened. */
function folded(summary, content) {
  const card = make("details", { className: "card wide" }, make("summary", {}, summary));
  const fill = () => card.children.length > 1 || card.append(...content());
  card.addEventListener("toggle", fill);
  card.addEventListener("fill", fill);
  return card;
}

/** A table with its claims, under its title and the number of cells per verdict. */
const tableCard = (table) =>
  folded([make("span", { className: "heading" }, table.title), tally(table)], () =>
    [claims(table), tableOrigin(table), publishedTable(table)].filter((node) => node),
  );

const tableOrigin = (table) =>
  table.command
    ? commandLine(table.command)
    : make(
        "p",
        { className: "sub" },
        "Made with other settings, or in part: the file name does not give the command.",
      );

/** The cells of a table: rows are methods, each with ours and the published value. */
function publishedTable(table) {
  const cells = new Map(table.cells.map((cell) => [`${cell.row}\n${cell.column}`, cell]));
  const heads = table.columns.map((column) => make("th", { scope: "col" }, column));
  const line = (row) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, nameOfMethod(row)),
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
      verdicts.map(([name, count]) => `${count} ${counted(name, count)}`).join(" · "),
    ),
  );
}

/** A verdict after a number: 1 differs, 2 differ. */
const counted = (verdict, count) => (verdict === "differs" && count !== 1 ? "differ" : verdict);

function tableCell(cell) {
  if (!cell) return make("td", {});
  const [kind, sign] = mark(cell.verdict);
  const digits = Math.max((cell.published.split(".")[1] ?? "").length, cell.published ? 0 : 3);
  const ours = oursText(cell, digits);
  const published = cell.published ? `[${pair(cell.published, cell.published_spread)}]` : "";
  return make(
    "td",
    { className: `cell ${kind}`, title: cell.verdict },
    make("span", { className: "ours" }, ours),
    make("span", { className: "theirs" }, published),
    make("span", { className: "verdict" }, cell.verdict === "-" ? "" : `${sign} ${cell.verdict}`),
  );
}

/** Our value ± spread (n); where there is no number, why. */
function oursText({ ours, spread, n }, digits) {
  if (ours === "" || n === "0") return "–";
  const runs = n ? ` (${n})` : "";
  if (Number.isNaN(Number(ours.replace("inf", "Infinity")))) return `not finite${runs}`;
  return `${pair(rounded(ours, digits), rounded(spread, digits))}${runs}`;
}

const pair = (value, spread) => (spread ? `${value} ± ${spread}` : value);
/** A number with that many decimals; "" for one that is not known. */
const rounded = (text, digits) =>
  text === "" || text === "nan"
    ? ""
    : Number.isFinite(Number(text))
      ? Number(text).toFixed(digits)
      : text;

function unreadable(files) {
  return [
    make(
      "ul",
      { className: "files" },
      files.map(([source, why]) => make("li", {}, make("code", {}, source), ` ${why}`)),
    ),
  ];
}
