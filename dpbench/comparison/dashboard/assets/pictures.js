// Shared by all plots: colours, markers, and drawing only what comes into view.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const dashOf = (place) => DASHES[place % DASHES.length];

/** A colour from the style sheet, in the current theme. */
const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Plotly interprets some markup in texts; text from records must be escaped. */
const plain = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** Colour and marker of a method; grey where others are in focus, or the picture says so. */
function lookOf(method, quiet = false) {
  const look = data.looks[method];
  const grey = quiet || (view.focus && !view.focus.includes(method));
  return grey ? { ...look, colour: "grey" } : look;
}

const plotly = Promise.withResolvers();

/** Plotly takes longer to start than the rest of the page, so it does afterwards. */
async function startPlotly() {
  document.head.append(make("script", { textContent: await unpacked("library") }));
  plotly.resolve();
}

const observer = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries)
      if (isIntersecting && !target.data)
        plotly.promise.then(() => target.isConnected && draw(target));
  },
  { rootMargin: "300px" },
);

/** A placeholder, drawn from `describe()` -> {traces, layout} when it comes near the view. */
function picture(label, kind, describe) {
  const node = make(`div.picture.${kind}`, { role: "img", "aria-label": label });
  node.describe = describe;
  observer.observe(node);
  return node;
}

/**
 * A card with a picture that can be saved under its label. said(): what the file says beside it,
 * as a list of texts.
 */
function card(title, label, kind, describe, { above = null, below = null, said = () => [] } = {}) {
  const plot = picture(label, kind, describe);
  const exports = pictureExports(plot, label, said);
  return make("article.card", make("h3", title), above, plot, exports, below);
}

function draw(node) {
  const { traces, layout } = node.describe();
  // Plotly adapts to the window, which does not exist on paper.
  const { clientWidth: width, clientHeight: height } = node;
  const size = onPaper() ? { width, height } : { autosize: true };
  const settings = { displayModeBar: false, responsive: true };
  const first = !node.data;
  Plotly.react(node, traces, { template: template(), ...layout, ...size }, settings);
  if (first)
    node.on("plotly_click", ({ points }) => {
      const run = points.map((point) => point.customdata).find((id) => id);
      if (run) choose({ run });
    });
}

const onPaper = () => document.documentElement.classList.contains("paper");

/** Release the plots in a part of the page before it is rebuilt. */
function forget(part) {
  for (const node of part.querySelectorAll(".js-plotly-plot")) Plotly.purge(node);
}

/** Draw all plots again, and with `.picture` the others too. */
const redraw = (which = ".js-plotly-plot") =>
  plotly.promise.then(() => document.querySelectorAll(which).forEach(draw));

/** What is common to all plots, in the colours of the theme. */
function template() {
  const axis = {
    gridcolor: colour("line"),
    linecolor: colour("muted"),
    zeroline: false,
    fixedrange: true,
    tickangle: 0,
    ticks: "outside",
    tickcolor: colour("line"),
  };
  const label = { bgcolor: colour("card"), bordercolor: colour("muted"), align: "left" };
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: colour("ink") },
    margin: { l: 8, r: 10, t: 10, b: 46 },
    showlegend: false,
    dragmode: false,
    hovermode: "closest",
    hoverlabel: { ...label, font: { color: colour("ink") } },
    xaxis: axis,
    yaxis: { ...axis, automargin: "left" },
  };
  return { layout };
}

const titled = (text, axis = {}) => ({ title: { text, standoff: 6 }, ...axis });

/** The ends of an axis: those of the values and a margin; powers of ten if it is logarithmic. */
function around(values, log = false) {
  const ends = [Math.min(...values), Math.max(...values)];
  const [low, high] = log ? ends.map(Math.log10) : ends;
  const margin = Math.max(0.08 * (high - low), log ? 0.12 : 0) || 0.05 * (Math.abs(high) || 1);
  return [low - margin, high + margin];
}

/**
 * Means with their intervals. points: {x, y, text, run} and the ends of the interval, `above` and
 * `below` the mean, if it has one. mark: of the method; way: "y", or "x" for intervals that lie.
 */
function meansTrace(points, method, settings = {}) {
  const { way = "y", dash = "solid", quiet = false, text, ...others } = settings;
  const { mark, colour: name } = lookOf(method, quiet);
  const color = colour(name);
  const bars = {
    type: "data",
    symmetric: false,
    array: points.map((point) => point.above),
    arrayminus: points.map((point) => point.below),
    visible: !quiet && points.some((point) => point.above != null),
    thickness: 1.4,
    width: 4,
    color,
  };
  return {
    type: "scatter",
    mode: "markers",
    name: plain(text ?? data.methods[method]),
    x: points.map((point) => point.x),
    y: points.map((point) => point.y),
    line: { color, width: quiet ? 1 : 2, dash },
    marker: {
      color,
      size: quiet ? 6 : 10,
      symbol: points.map((point) => (point.open ? `${mark}-open` : mark)),
      line: { color: colour("card"), width: 1 },
    },
    [`error_${way}`]: bars,
    hoverinfo: "text",
    hovertext: points.map((point) => point.text.map(plain).join("<br>")),
    customdata: points.map((point) => point.run),
    ...others,
  };
}

/** A line through points [x, y] on which nothing can be pointed at. */
const lineTrace = (points, line) => ({
  type: "scatter",
  mode: "lines",
  x: points.map(([x]) => x),
  y: points.map(([, y]) => y),
  line,
  hoverinfo: "skip",
});

/** The dashed line on which x and y are equal. */
function diagonalTrace(...ends) {
  const points = ends.map((end) => [end, end]);
  return lineTrace(points, { color: colour("ink"), width: 1.2, dash: "dash" });
}

/** The marker of a method on its line. */
const symbol = (method, dash = "solid", quiet = false) =>
  svg(
    "svg",
    { viewBox: "0 0 24 16", width: 24, height: 16, "aria-hidden": "true" },
    svg("path", { d: "M0 8h24", class: `stroke-${lookOf(method, quiet).colour} ${dash}` }),
    mark(method, 0, 0, quiet),
  );

const mark = (method, x, y, quiet = false) =>
  svg("use", {
    href: `#mark-${lookOf(method).mark}`,
    class: `fill-${lookOf(method, quiet).colour}`,
    transform: `translate(${x} ${y})`,
  });

const LEGEND_ROWS = 16;

/** A legend of series {method, dash, text}, in HTML, so that it wraps and can be read out. */
function legend(series) {
  const others = series.length - LEGEND_ROWS;
  const items = series
    .slice(0, LEGEND_ROWS)
    .map(({ method, dash, text, quiet }) => make("li", symbol(method, dash, quiet), text));
  const rest = others > 0 ? make("li", `and ${others} more: point at a marker`) : null;
  return make("ul.legend", items, rest);
}
