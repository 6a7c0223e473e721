// Milliseconds per step.

/** Milliseconds per step, one plot per data set, model, batch size and machine. */
function costs(rows, page) {
  const timed = rows.filter((row) => row.dataset !== null && Number.isFinite(row.ms) && row.ms > 0);
  if (!timed.length) return [empty("None of the selected runs has recorded its time and steps.")];
  const cards = [...grouped(timed, (row) => `${row.facet} — ${row.machine}`)].map(
    ([title, members]) => cost(title, members, page),
  );
  return limited(cards, 6);
}

const MOST_LANES = 24;

function cost(title, rows, page) {
  const varied = rows[0].execution.map(
    (_, i) => new Set(rows.map((row) => row.execution[i])).size > 1,
  );
  const settings = (row, differing) =>
    row.execution.filter((_, i) => varied[i] === differing).join(", ");
  const all = [...grouped(rows, (row) => [row.series, ...row.execution].join(" ")).values()]
    .map((runs) => costLane(runs, settings(runs[0], true), page))
    .sort((a, b) => b.mean - a.mean);
  const lanes = all.slice(-MOST_LANES);
  const label = `milliseconds per step, ${title}`;
  const plot = picture(label, "cost", () => costPicture(lanes), page.open);
  plot.style.height = `${80 + 30 * lanes.length}px`;
  return make(
    "article",
    { className: "card" },
    make("h3", {}, title),
    make("p", { className: "sub" }, settings(rows[0], false)),
    all.length > lanes.length
      ? make("p", { className: "sub" }, `The ${MOST_LANES} fastest of ${all.length}.`)
      : null,
    plot,
    pictureExports(plot, label),
  );
}

/** One line of the plot. A run that diverged has a valid time. */
function costLane(runs, how, page) {
  const timed = runs.map((run) => ({ ...run, status: "complete" }));
  return {
    runs,
    text: [nameOf(runs[0]), how].filter((part) => part).join(" · "),
    look: page.looks.get(runs[0].method),
    ...summary(timed, (run) => run.ms, page.data.t),
  };
}

function costPicture(lanes) {
  return {
    traces: lanes.flatMap((lane, y) => [runsTrace(lane, y), meanTrace(lane, y)]),
    layout: {
      xaxis: { title: { text: "ms per step", standoff: 6 }, range: [0, 1.06 * longest(lanes)] },
      yaxis: {
        tickvals: lanes.map((_, i) => i),
        ticktext: lanes.map((lane) => plain(shortened(lane.text))),
        range: [-0.6, lanes.length - 0.4],
        ticks: "",
      },
    },
  };
}

/** The largest time in the plot, including the ends of intervals. */
function longest(lanes) {
  const ends = lanes.map((lane) => lane.mean + (lane.half ?? 0));
  const times = lanes.flatMap((lane) => lane.runs.map((run) => run.ms));
  return Math.max(...[...times, ...ends].filter(Number.isFinite));
}

const stepText = (lane, value) => `${plain(lane.text)}<br>${figures(value)} ms per step`;

const runsTrace = (lane, y) => ({
  type: "scatter",
  mode: "markers",
  x: lane.runs.map((r) => r.ms),
  y: lane.runs.map(() => y),
  marker: { color: colour(lane.look.colour), opacity: 0.35, size: 7 },
  hoverinfo: "text",
  hovertext: lane.runs.map((r) => `${stepText(lane, r.ms)}<br>seed ${plain(r.seed)}`),
  customdata: lane.runs.map((r) => r.id),
});

function meanTrace(lane, y) {
  const color = colour(lane.look.colour);
  const line = { color: colour("card"), width: 1 };
  return {
    type: "scatter",
    mode: "markers",
    x: [lane.mean],
    y: [y],
    marker: { color, symbol: lane.look.mark, size: 11, line },
    error_x: {
      type: "data",
      array: [lane.half],
      visible: lane.half !== null,
      color,
      thickness: 1.4,
      width: 4,
    },
    hoverinfo: "text",
    hovertext: [`${stepText(lane, lane.mean)}, mean of ${lane.n}`],
    customdata: [lane.runs[0].id],
  };
}

/** A name beside a plot, which on a narrow screen would leave no room for it. */
function shortened(text) {
  const most = innerWidth < 600 ? 22 : 34;
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
