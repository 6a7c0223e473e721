// Shared by all plots: colours, markers, and drawing only what comes into view.

const MARKS = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "x", "star"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

/** A colour from the style sheet, in the current theme. */
const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Plotly interprets some markup in texts; text from records must be escaped. */
const plain = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** Colour and marker of each method, the same in every plot and under every filter. */
function looks(methods) {
  return new Map(
    methods.map((method, i) => [
      method,
      { colour: `c${i % 8}`, mark: MARKS[(i + Math.floor(i / 8)) % 8] },
    ]),
  );
}

const drawn = new Set();
const waiting = new Map();
const observer = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting && waiting.has(target) && globalThis.Plotly) draw(target);
    }
  },
  { rootMargin: "300px" },
);

/** Plotly takes longer to start than the rest of the page, so it does afterwards. */
async function startPlotly() {
  const library = make("script", { textContent: await unpackedText("library") });
  document.head.append(library);
  if (onPaper()) return drawAll(); // where nothing scrolls into view
  for (const node of waiting.keys()) {
    observer.unobserve(node);
    observer.observe(node); // which asks again whether it is in view
  }
}

/** A placeholder, drawn from `describe()` -> {traces, layout} when it comes near the view. */
function picture(label, className, describe, onpoint) {
  const node = make("div", { className: `picture ${className}`, role: "img", "aria-label": label });
  waiting.set(node, { describe, onpoint });
  observer.observe(node);
  return node;
}

function draw(node) {
  const { describe, onpoint } = waiting.get(node);
  const { traces, layout } = describe();
  Plotly.react(
    node,
    traces,
    { ...framed(layout), ...size(node) },
    { displayModeBar: false, responsive: true },
  );
  if (!drawn.has(node) && onpoint) {
    node.on("plotly_click", (event) => {
      const found = event.points.map((point) => point.customdata).find((data) => data);
      if (found) onpoint(found);
    });
  }
  drawn.add(node);
  observer.unobserve(node);
}

const onPaper = () => document.documentElement.classList.contains("paper");

/** Plotly adapts to the window, which does not exist on paper. */
const size = (node) =>
  onPaper() ? { width: node.clientWidth, height: node.clientHeight } : { autosize: true };

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

/** The dashed line from the origin on which x and y are equal. */
const diagonalTrace = (end) => ({
  type: "scatter",
  mode: "lines",
  x: [0, end],
  y: [0, end],
  line: { color: colour("ink"), width: 1.2, dash: "dash" },
  hoverinfo: "skip",
});

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
  const axes = Object.fromEntries(
    Object.entries(layout)
      .filter(([k]) => /^[xy]axis/.test(k))
      .map(([k, v]) => [k, { ...axis, automargin: k[0] === "y" && "left", ...v }]),
  );
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: colour("ink") },
    margin: { l: 8, r: 10, t: 10, b: 46 },
    showlegend: false,
    dragmode: false,
    hovermode: "closest",
    hoverlabel: {
      bgcolor: colour("card"),
      bordercolor: colour("muted"),
      font: { color: colour("ink") },
      align: "left",
    },
    ...layout,
    ...axes,
  };
}

const PATHS = {
  circle: "M12 3.5a4.5 4.5 0 1 0 .01 0z",
  square: "M8 4h8v8h-8z",
  diamond: "M12 2.5l5.5 5.5l-5.5 5.5l-5.5-5.5z",
  "triangle-up": "M12 3l5 9h-10z",
  "triangle-down": "M12 13l5-9h-10z",
  cross: "M10.5 3h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
  x: "M8 5.5 9.5 4 12 6.5 14.5 4 16 5.5 13.5 8 16 10.5 14.5 12 12 9.5 9.5 12 8 10.5 10.5 8z",
  star: "M12 2l1.5 4.2h4.5l-3.6 2.7l1.3 4.3l-3.7-2.6l-3.7 2.6l1.3-4.3l-3.6-2.7h4.5z",
};
const STROKES = {
  solid: "",
  dash: "5 3",
  dot: "2 2",
  dashdot: "5 2 2 2",
  longdash: "8 3",
  longdashdot: "8 2 2 2",
};

/** The marker of a method on its line. */
const symbol = (look, dash) =>
  svg(
    "svg",
    { viewBox: "0 0 24 16", width: 24, height: 16, "aria-hidden": "true" },
    svg("path", {
      d: "M0 8h24",
      class: `stroke-${look.colour}`,
      "stroke-dasharray": STROKES[dash],
    }),
    svg("path", { d: PATHS[look.mark], class: `fill-${look.colour}` }),
  );

/** A legend of series {look, dash, text}, in HTML, so that it wraps and can be read out. */
function legend(series) {
  const item = ({ look, dash, text }) => make("li", {}, symbol(look, dash), text);
  return make("ul", { className: "legend" }, series.map(item));
}

const LEGEND_ROWS = 16;

/** A legend of the first series, and the number of the others. */
function shortLegend(series) {
  const list = legend(series.slice(0, LEGEND_ROWS));
  const others = series.length - LEGEND_ROWS;
  if (others > 0) list.append(make("li", {}, `and ${others} more: point at a marker`));
  return list;
}
