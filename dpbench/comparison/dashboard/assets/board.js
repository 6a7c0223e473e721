// The first view: for some data, a budget and a metric, a row per method, as Python wrote it.

/** The chosen board of the data sets that pass the filters; else the one that says most. */
function boardPart(rows) {
  const shown = new Set(rows.map((row) => row.facet));
  let boards = data.boards.filter(({ facets }) => facets.every((facet) => shown.has(facet)));
  if (!boards.length) return [empty("No method has been tested among the selected runs.")];
  for (const name of ["board", "budget", "by"]) {
    const most = boards.reduce((a, b) => (b.weight > a.weight ? b : a));
    const chosen = (boards.find((one) => one[name] === view[name]) ?? most)[name];
    fillChosen(name, [...new Set(boards.map((one) => one[name]))], chosen);
    boards = boards.filter((one) => one[name] === chosen);
  }
  const [board] = boards;
  const lines = board.rows.filter(({ method }) => !view.method || view.method.includes(method));
  const table = sortable(board.head, lines, board.caption).node;
  table.firstChild.classList.add("board", "card");
  return [
    make("p.answer", board.answer),
    tasksOf(board),
    lines.length ? table : "",
    make("div.notes", ...board.notes.map((note) => make("p", note))),
    make(
      "div.exports",
      focusButton(board),
      textExports((suffix) => board.files[suffix], "methods"),
    ),
  ];
}

/** Which tasks decide; unfolded on wide screens, which do not and why. */
function tasksOf({ tasks: [first, ...others] }) {
  if (!first) return "";
  const open = matchMedia("(min-width: 60rem)").matches;
  const texts = others.map((text) => make("p", text));
  return make("details.notes.tasks", { open }, make("summary", first), texts);
}

/** The baseline and the first methods in colour and all others grey, or all in colour. */
const focusButton = ({ focus }) =>
  view.focus
    ? button("All in colour", () => choose({ focus: null }))
    : button("Only the first in colour", () => choose({ focus }));

function fillChosen(name, values, chosen) {
  const select = document.querySelector(`select[name=${name}]`);
  select.replaceChildren(...values.map((value) => new Option(value)));
  select.value = chosen;
}

/** A mean with its interval on the axis that its column shares. */
const whiskers = ({ method, mean, interval, axis, label }) =>
  svg(
    "svg",
    { viewBox: "0 0 120 26", class: "whiskers", role: "img", "aria-label": label },
    svg("path", { d: axis, class: "axis" }),
    svg("path", { d: interval, class: `stroke-${lookOf(method).colour}` }),
    mark(method, mean - 12, 5),
  );
