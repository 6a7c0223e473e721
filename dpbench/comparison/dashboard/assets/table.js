// Tables: their cells, whose texts are Python's, and headings that sort.

/** A cell: a text, or what `Cell` in board_view.py describes. */
function cellOf(given) {
  const cell = given?.constructor === Object ? given : { text: given };
  if (cell.head !== undefined) return make("th", { scope: "row" }, cell.head);
  const lines = (cell.lines ?? []).map(([kind, line]) => make("span", { className: kind }, line));
  const bold = cell.lines && cell.text ? make("b", cell.text) : cell.text;
  const text = cell.run ? link(cell.text, cell.run) : bold;
  const drawn = cell.whiskers ? whiskers(cell.whiskers) : "";
  let content = [drawn, text];
  if (cell.method) content = make("div.method", symbol(cell.method), make("div", text, lines));
  else if (cell.lines) content = make("div.estimate", drawn, text, lines);
  return make("td", { className: cell.kind ?? "", title: cell.title ?? "" }, content);
}

/** A table. lines: of {cells, kind}. */
function grid(head, lines, caption, kind = "") {
  const heads = head.map((content) => make("th", { scope: "col" }, content));
  const rows = lines.map((line) =>
    make("tr", { className: line.kind ?? "" }, line.cells.map(cellOf)),
  );
  const parts = [make("caption", caption), make("thead", make("tr", heads)), make("tbody", rows)];
  const region = { tabIndex: 0, role: "region", "aria-label": caption };
  return make("div.scroll", region, make("table", { className: kind }, parts));
}

const LINES_PER_PAGE = 50;
const byNumber = (a, b) => a.localeCompare(b, "en", { numeric: true });
const textOf = (cell) => cell?.text ?? String(cell);

/** The sign of a - b: smaller numbers first, then what is no number, texts by their digits. */
function inOrder(a, b) {
  if (a?.sort === undefined) return byNumber(textOf(a), textOf(b));
  const [x, y] = [a, b].map(({ sort }) => (Number.isFinite(sort) ? sort : Infinity));
  return x === y ? 0 : x - y;
}

const wordsIn = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

/** The text that a line is found by, made once: its cells, and more() that is not shown. */
function textOfLine(line) {
  line.text ??= [...line.cells.map(textOf), ...(line.more?.() ?? [])].join("\n").toLowerCase();
  return line.text;
}

/** The lines that contain all words, in the chosen order. */
function selected(lines, { words, column, down }) {
  const wanted = wordsIn(words);
  const found = lines.filter((line) => wanted.every((word) => textOfLine(line).includes(word)));
  if (column === null) return found;
  return found.sort((a, b) => (down ? -1 : 1) * inOrder(a.cells[column], b.cells[column]));
}

/** A table whose headings sort: its element, a search, and its lines as they are shown. */
function sortable(head, lines, caption, paged = false) {
  const shown = { column: null, down: false, words: "", page: 0 };
  const node = make("div");
  const show = (change) => {
    Object.assign(shown, { page: 0 }, change);
    const all = selected(lines, shown);
    const from = shown.page * LINES_PER_PAGE;
    const some = paged ? all.slice(from, from + LINES_PER_PAGE) : all;
    const table = grid(head.map(sortButton), some, caption);
    const { key } = node.contains(document.activeElement) ? document.activeElement.dataset : {};
    node.replaceChildren(table, paged ? pager(all.length, shown.page, show) : "");
    node.querySelector(`[data-key="${key}"]`)?.focus(); // which replacing it takes away
  };
  const sortButton = (text, i) => {
    const down = shown.column === i && !shown.down;
    const sign = shown.column !== i ? "" : shown.down ? " ▼" : " ▲";
    const properties = { className: "sort", "data-key": i };
    return button(`${text}${sign}`, () => show({ column: i, down }), properties);
  };
  show({});
  return { node, search: (words) => show({ words }), chosen: () => selected(lines, shown) };
}

function pager(count, page, show) {
  const last = Math.max(0, Math.ceil(count / LINES_PER_PAGE) - 1);
  const turn = (text, to) =>
    button(text, () => show({ page: to }), { disabled: to < 0 || to > last, "data-key": text });
  const from = count ? page * LINES_PER_PAGE + 1 : 0;
  const said = `${from} to ${Math.min(count, (page + 1) * LINES_PER_PAGE)} of ${count}`;
  return make("div.pager", turn("Previous", page - 1), make("span", said), turn("Next", page + 1));
}
