// Shared by all plots: colours, markers, and drawing only what comes into view.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

/** A colour from the style sheet, in the current theme. */
const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Plotly interprets some markup in texts; text from records must be escaped. */
const plain = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** Colour and marker of a method; grey where others are in focus. */
function lookOf(method) {
  const look = data.looks[method];
  return !view.focus || view.focus.includes(method) ? look : { ...look, colour: "grey" };
}

const drawn = new Set();
const waiting = new Map();
const observer = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries)
      if (isIntersecting && waiting.has(target) && globalThis.Plotly) draw(target);
  },
  { rootMargin: "300px" },
);

/** Plotly takes longer to start than the rest of the page, so it does afterwards. */
async function startPlotly() {
  document.head.append(make("script", { textContent: await unpacked("library") }));
  if (onPaper()) return drawAll(); // where nothing scrolls into view
  for (const node of waiting.keys()) {
    observer.unobserve(node);
    observer.observe(node); // which asks again whether it is in view
  }
}

/** A placeholder, drawn from `describe()` -> {traces, layout} when it comes near the view. */
function picture(label, kind, describe) {
  const node = make(`div.picture.${kind}`, { role: "img", "aria-label": label });
  waiting.set(node, describe);
  observer.observe(node);
  return node;
}

/** A card with a picture that can be saved under its label. */
function card(title, label, kind, describe, above = null, below = null) {
  const plot = picture(label, kind, describe);
  return make("article.card", make("h3", title), above, plot, pictureExports(plot, label), below);
}

function draw(node) {
  const { traces, layout } = waiting.get(node)();
  // Plotly adapts to the window, which does not exist on paper.
  const size = onPaper()
    ? { width: node.clientWidth, height: node.clientHeight }
    : { autosize: true };
  const settings = { displayModeBar: false, responsive: true };
  Plotly.react(node, traces, { ...framed(layout), ...size }, settings);
  if (!drawn.has(node))
    node.on("plotly_click", ({ points }) => {
      const run = points.map((point) => point.customdata).find((id) => id);
      if (run) choose({ run });
    });
  drawn.add(node);
  observer.unobserve(node);
}

const onPaper = () => document.documentElement.classList.contains("paper");

/** Release the plots in a part of the page before it is rebuilt. */
function forget(part) {
  for (const node of part.querySelectorAll(".picture")) {
    if (drawn.delete(node)) Plotly.purge(node);
    waiting.delete(node);
    observer.unobserve(node);
  }
}

const redraw = () => [...drawn].forEach(draw);
const drawAll = () => globalThis.Plotly && [...waiting.keys()].forEach(draw);

function framed(layout) {
  const axis = {
    gridcolor: colour("line"),
    linecolor: colour("muted"),
    zeroline: false,
    fixedrange: true,
    tickangle: 0,
    ticks: "outside",
    tickcolor: colour("line"),
  };
  const axes = Object.entries(layout)
    .filter(([name]) => /^[xy]axis/.test(name))
    .map(([name, own]) => [name, { ...axis, automargin: name[0] === "y" && "left", ...own }]);
  const label = { bgcolor: colour("card"), bordercolor: colour("muted"), align: "left" };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: colour("ink") },
    margin: { l: 8, r: 10, t: 10, b: 46 },
    showlegend: false,
    dragmode: false,
    hovermode: "closest",
    hoverlabel: { ...label, font: { color: colour("ink") } },
    ...layout,
    ...Object.fromEntries(axes),
  };
}

const titled = (text, axis = {}) => ({ title: { text, standoff: 6 }, ...axis });

/**
 * Means with their intervals. points: {x, y, text, run} and the ends of the interval, `above` and
 * `below` the mean. look: of the method. way: "y", or "x" for intervals that lie.
 */
function meansTrace(points, look, { way = "y", dash = "solid", ...settings } = {}) {
  const color = colour(look.colour);
  const bars = {
    type: "data",
    symmetric: false,
    array: points.map((point) => point.above),
    arrayminus: points.map((point) => point.below),
    visible: points.some((point) => point.above !== null),
    thickness: 1.4,
    width: 4,
    color,
  };
  return {
    type: "scatter",
    mode: "markers",
    x: points.map((point) => point.x),
    y: points.map((point) => point.y),
    line: { color, width: 1.8, dash },
    marker: {
      color,
      size: 10,
      symbol: points.map((point) => (point.open ? `${look.mark}-open` : look.mark)),
      line: { color: colour("card"), width: 1 },
    },
    [`error_${way}`]: bars,
    hoverinfo: "text",
    hovertext: points.map((point) => point.text.map(plain).join("<br>")),
    customdata: points.map((point) => point.run),
    ...settings,
  };
}

/** The dashed line on which x and y are equal. */
const diagonalTrace = (...ends) => ({
  type: "scatter",
  mode: "lines",
  x: ends,
  y: ends,
  line: { color: colour("ink"), width: 1.2, dash: "dash" },
  hoverinfo: "skip",
});

/** The marker of a method on its line. */
const symbol = (method, dash = "solid") =>
  svg(
    "svg",
    { viewBox: "0 0 24 16", width: 24, height: 16, "aria-hidden": "true" },
    svg("path", { d: "M0 8h24", class: `stroke-${lookOf(method).colour} ${dash}` }),
    mark(method, 0, 0),
  );

const mark = (method, x, y) =>
  svg("use", {
    href: `#mark-${lookOf(method).mark}`,
    class: `fill-${lookOf(method).colour}`,
    transform: `translate(${x} ${y})`,
  });

const LEGEND_ROWS = 16;

/** A legend of series {method, dash, text}, in HTML, so that it wraps and can be read out. */
function legend(series) {
  const others = series.length - LEGEND_ROWS;
  const items = series
    .slice(0, LEGEND_ROWS)
    .map(({ method, dash, text }) => make("li", symbol(method, dash), text));
  return make(
    "ul.legend",
    items,
    others > 0 ? make("li", `and ${others} more: point at a marker`) : null,
  );
}
