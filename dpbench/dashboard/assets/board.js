// The first view: for some data, a budget and a metric, a row per method, as Python wrote it.

/** The choices of the first view, and what of a board each of them chooses. */
const OF_BOARD = { board: "facet", budget: "budget", by: "metric" };

/** The chosen board of the data sets that pass the filters; else the one that says most. */
function boardPart(rows) {
  const shown = new Set(rows.map((row) => row.facet));
  let boards = data.boards.filter(({ facets }) => facets.every((facet) => shown.has(facet)));
  if (!boards.length) return [empty("No method has been tested among the selected runs.")];
  for (const [choice, part] of Object.entries(OF_BOARD)) {
    const most = boards.reduce((a, b) => (b.weight > a.weight ? b : a));
    const chosen = (boards.find((one) => one[part] === view[choice]) ?? most)[part];
    fillChosen(choice, [...new Set(boards.map((one) => one[part]))], chosen);
    boards = boards.filter((one) => one[part] === chosen);
  }
  const [board] = boards;
  const lines = board.rows.filter(({ method }) => !view.method || view.method.includes(method));
  const table = sortable(board.head, lines, board.caption).node;
  table.firstChild.classList.add("board", "card");
  const texts = { csv: () => board.files.csv, tex: () => board.files.tex };
  return [
    make("p.answer", board.answer),
    table,
    make(
      "div.notes",
      board.notes.map((note) => make("p", note)),
    ),
    make("div.exports", focusButton(board), textExports(texts, "methods")),
  ];
}

/** The baseline and the first methods in colour and all others grey, or all in colour. */
const focusButton = ({ focus }) =>
  view.focus
    ? button("All in colour", () => choose({ focus: null }))
    : button("Only the first in colour", () => choose({ focus }));

function fillChosen(name, values, chosen) {
  const select = document.querySelector(`select[name=${name}]`);
  fill(
    select,
    values.map((value) => [value, value]),
  );
  select.value = chosen;
}

const WIDTH = 120;
const HEIGHT = 26;

/**
 * A mean with its interval on the axis that its column shares; places are shares of its length.
 * An end is a bar, or an arrow where the interval leaves the axis.
 */
function whiskers({ method, mean, low, high, zero, label }) {
  const place = (share) => 10 + (WIDTH - 20) * Math.min(1, Math.max(0, share));
  const middle = HEIGHT / 2;
  const line = (x1, x2, y1, y2, kind) => svg("line", { x1, x2, y1, y2, class: kind });
  const end = (share, up) => {
    const back = share < 0 ? 4 : share > 1 ? -4 : 0;
    return line(place(share), place(share) + back, middle, middle + up, `stroke-${look.colour}`);
  };
  const look = lookOf(method);
  const interval = [
    line(place(low), place(high), middle, middle, `stroke-${look.colour}`),
    ...[low, high].flatMap((share) => [end(share, -4), end(share, 4)]),
  ];
  return svg(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      width: WIDTH,
      height: HEIGHT,
      role: "img",
      "aria-label": label,
    },
    line(0, WIDTH, middle, middle, "axis"),
    zero === null ? "" : line(place(zero), place(zero), 0, HEIGHT, "axis"),
    ...(low === null ? [] : interval),
    mark(method, place(mean) - 12, middle - 8),
  );
}
