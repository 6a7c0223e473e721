// The first view: for one data set and budget, a ranked row per method.

const STANDINGS = {
  first: ["first", "has the best mean"],
  tied: ["≈ first", "not significantly behind the first"],
  behind: ["behind", "significantly behind the first"],
  unknown: ["one seed", "too few common seeds to compare with the first"],
  unranked: ["–", "has no epsilon, or diverged, and so no rank"],
};

const keyOf = (board) => (board.low === null ? "none" : `${board.low} at ${board.delta}`);

/** The boards of the data sets and models that pass the filters. */
function shownBoards(rows) {
  const facets = new Set(rows.map((row) => row.facet));
  return data.boards.filter((board) => facets.has(board.facet));
}

/** The chosen board; without a choice, the one that ranks the most methods. */
function chosenBoard(boards) {
  const ranked = (board) => board.rows.filter((row) => row.rank).length;
  const wanted = boards.filter((board) => !page.state.board || board.facet === page.state.board);
  const best = [...wanted].sort((a, b) => ranked(b) - ranked(a))[0];
  return wanted.find((board) => keyOf(board) === page.state.budget) ?? best;
}

const budgetText = (board) => {
  if (board.low === null) return "no epsilon";
  const [low, high] = [board.low, board.high].map(atMost);
  return `ε ${low === high ? low : `${low} to ${high}`} at δ = ${figures(board.delta)}`;
};

/** The choices of data set and budget, and the table. */
function boardView(rows) {
  const boards = shownBoards(rows);
  const board = chosenBoard(boards);
  if (!board) return [empty("No method has been tested among the selected runs.")];
  const facets = [...new Set(boards.map((one) => one.facet))].sort(byNumber);
  const budgets = boards.filter((one) => one.facet === board.facet);
  const chosen = (change) => choose(change);
  return [
    make(
      "div",
      { className: "choices" },
      choice(
        "Data set",
        facets.map((f) => [f, f]),
        board.facet,
        (value) => chosen({ board: value, budget: "" }),
      ),
      choice(
        "Budget",
        budgets.map((one) => [keyOf(one), budgetText(one)]),
        keyOf(board),
        (value) => chosen({ board: board.facet, budget: value }),
      ),
    ),
    make("p", { className: "answer" }, board.answer),
    boardTable(board),
    boardNotes(board),
    make(
      "div",
      { className: "exports" },
      tableExports(...["csv", "tex"].map((suffix) => () => board.files[suffix]), "methods"),
    ),
  ];
}

/** The table, whose headings sort. */
function boardTable(board) {
  const view = { sorted: null, down: false };
  const place = make("div", {});
  const show = (change) => {
    Object.assign(view, change);
    place.replaceChildren(boardGrid(board, view, show));
  };
  show({});
  return place;
}

/** What the headings sort by; those without a text do not sort. */
function boardColumns(board) {
  const metric = (column, i) => ({
    head: arrowed(column),
    text: () => "",
    number: (row) => row.cells[i]?.mean,
  });
  const [first, ...others] = board.columns.map(metric);
  const number = (head, of) => ({ head, text: () => "", number: of });
  return [
    number("#", (row) => row.rank),
    { head: "method", text: (row) => nameOfMethod(row.method) },
    first ?? { head: "–" },
    { head: board.baseline ? `less ${nameOfMethod(board.baseline)}` : "interval" },
    { head: "significance" },
    ...others,
    number("ε", (row) => row.epsilon),
    number("ms per step", (row) => row.ms?.[0]),
  ];
}

function boardGrid(board, view, show) {
  const { method } = page.state;
  const columns = boardColumns(board);
  const all = board.rows.filter((row) => !method || method.includes(row.method));
  const rows = selected(all, columns, { ...view, words: "" });
  const heads = columns.map(({ head, text }, i) => (text ? sortButton(head, i, view, show) : head));
  const lines = rows.map((row) => boardLine(row, board));
  const table = grid(heads, lines, `Methods on ${board.facet}, ${budgetText(board)}`);
  table.classList.add("board", "card");
  for (const [i, line] of table.querySelectorAll("tbody tr").entries())
    line.classList.add(rows[i].standing);
  return table;
}

const arrowed = ({ label, better }) => `${label}${{ higher: " ↑", lower: " ↓" }[better] ?? ""}`;

function boardLine(row, board) {
  const [standing, title] = STANDINGS[row.standing];
  const [first, ...others] = row.cells.map((cell, i) => boardCell(cell, board.columns[i], row));
  return [
    row.rank ?? "–",
    methodCell(row),
    first ?? "–",
    whiskers(row, board.columns[0], board),
    make(
      "div",
      { className: "estimate" },
      make("span", { className: `standing ${row.standing}`, title }, standing),
      row.verdict ? make("span", { className: "sub" }, row.verdict) : null,
    ),
    ...others,
    epsilonCell(row),
    costCell(row),
  ];
}

/** Epsilon, its guarantee, and the lower bound that an audit has shown. */
const epsilonCell = ({ epsilon, guarantee, audit }) =>
  make(
    "div",
    { className: "estimate" },
    make("b", {}, Number.isFinite(epsilon) ? atMost(epsilon) : epsilon),
    Number.isFinite(epsilon) ? make("span", { className: "sub" }, guarantee) : null,
    audit
      ? make("span", { className: audit.refuted === null ? "sub" : "sub alarm" }, bound(audit))
      : null,
  );

function bound({ epsilon, confidence }) {
  const level = confidence === null ? "" : ` (${Math.round(100 * confidence)} %)`;
  return `audit: ≥ ${figures(epsilon)}${level}`;
}

function methodCell(row) {
  const name = button(nameOfMethod(row.method), () => page.open(row.id), { className: "link" });
  const seeds = row.seeds === 1 ? "1 seed" : `${row.seeds} seeds`;
  return make(
    "div",
    { className: "method" },
    symbol(page.looks.get(row.method), "solid"),
    make("div", {}, name, make("span", { className: "sub" }, `${row.chosen}, ${seeds}`)),
  );
}

/** The mean, its interval, and the difference to the baseline. */
function boardCell(cell, column, row) {
  if (!cell) return row.diverged ? `${row.diverged} of ${row.seeds} diverged` : "–";
  const ends = cell.over
    ? `${valueText(cell.low, column, "")} to ${valueText(cell.high, column, "")}`
    : "no interval";
  const title = cell.over ? `${LEVEL} interval over ${cell.over}` : "one seed";
  return make(
    "div",
    { className: "estimate" },
    make("b", {}, valueText(cell.mean, column)),
    make("span", { className: "sub", title }, ends),
    cell.gap ? make("span", { className: "gap" }, gapText(cell.gap, column)) : null,
  );
}

/** A difference with its sign, in points for a percentage. */
function gapText([gap, half], metric) {
  const factor = metric.percent ? 100 : 1;
  const text = (value) => (metric.percent ? value.toFixed(1) : figures(value));
  const sign = gap < 0 ? "−" : "+";
  const interval = half === null ? "" : ` ± ${text(factor * half)}`;
  return `${sign}${text(Math.abs(factor * gap))}${interval}`;
}

/** The mean time of a step, and the range over runs. */
function costCell({ ms, machine }) {
  if (!ms) return "–";
  const [mean, ...ends] = ms.map((value) => figures(value));
  const range = ends[0] === ends[1] ? null : make("span", { className: "sub" }, ends.join(" to "));
  return make("div", { className: "estimate", title: machine }, mean, range);
}

function boardNotes(board) {
  const machines = new Set(board.rows.map((row) => row.machine));
  const notes = [
    board.baseline
      ? `Below each interval: the difference to ${nameOfMethod(board.baseline)}, paired by seed.`
      : null,
    machines.size > 1
      ? "Times are of several machines or batch sizes (point at one to see which), not comparable."
      : null,
    board.rows.some((row) => row.audit) ? null : "None of these runs was audited.",
    board.rows.some((row) => row.chosen.endsWith("test set"))
      ? "A setting that is the best on the test set makes its method look too good."
      : null,
  ];
  return make(
    "div",
    { className: "notes" },
    notes.filter((note) => note).map((note) => make("p", {}, note)),
  );
}
