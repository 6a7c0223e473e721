// Milliseconds per step.

/** Milliseconds per step: only runs on one machine with one batch size stand in one picture. */
function costs(rows, page) {
  const timed = rows.filter((row) => Number.isFinite(row.ms) && row.ms > 0);
  if (!timed.length) return [empty("No run that is shown has its time and its steps on record.")];
  const cards = [...grouped(timed, (row) => `${row.facet} — ${row.machine}`)].map(
    ([title, members]) => cost(title, members, page),
  );
  return limited(cards, 6);
}

function cost(title, rows, page) {
  const varied = rows[0].how.map((_, i) => new Set(rows.map((row) => row.how[i])).size > 1);
  const said = (row, differing) => row.how.filter((_, i) => varied[i] === differing).join(", ");
  const lanes = [...grouped(rows, (row) => [row.series, ...row.how].join(" ")).values()]
    .map((runs) => ({
      runs,
      text: [nameOf(runs[0]), said(runs[0], true)].filter((part) => part).join(" · "),
      look: page.looks.get(runs[0].method),
      ...summary(
        runs.map((r) => ({ ...r, status: "complete" })),
        (row) => row.ms,
        page.data.t,
      ),
    }))
    .sort((a, b) => b.mean - a.mean);
  const plot = picture(
    `milliseconds per step, ${title}`,
    "cost",
    () => costPicture(lanes),
    page.open,
  );
  plot.style.height = `${80 + 30 * lanes.length}px`;
  return make(
    "article",
    { className: "card" },
    make("h3", {}, title),
    make("p", { className: "sub" }, said(rows[0], false)),
    plot,
  );
}

function costPicture(lanes) {
  const labels = lanes.map((lane) => shortened(lane.text));
  const most =
    1.06 *
    Math.max(
      ...lanes
        .flatMap((lane) => [...lane.runs.map((r) => r.ms), lane.mean + (lane.half ?? 0)])
        .filter(Number.isFinite),
    );
  const text = (lane, value) => `${plain(lane.text)}<br>${figures(value)} ms a step`;
  const traces = lanes.flatMap((lane, y) => [
    {
      type: "scatter",
      mode: "markers",
      x: lane.runs.map((r) => r.ms),
      y: lane.runs.map(() => y),
      marker: { color: colour(lane.look.colour), opacity: 0.35, size: 7 },
      hoverinfo: "text",
      hovertext: lane.runs.map((r) => `${text(lane, r.ms)}<br>seed ${plain(r.seed)}`),
      customdata: lane.runs.map((r) => r.id),
    },
    {
      type: "scatter",
      mode: "markers",
      x: [lane.mean],
      y: [y],
      marker: {
        color: colour(lane.look.colour),
        symbol: lane.look.mark,
        size: 11,
        line: { color: colour("card"), width: 1 },
      },
      error_x: {
        type: "data",
        array: [lane.half],
        visible: lane.half !== null,
        color: colour(lane.look.colour),
        thickness: 1.4,
        width: 4,
      },
      hoverinfo: "text",
      hovertext: [`${text(lane, lane.mean)}, mean of ${lane.n}`],
      customdata: [lane.runs[0].id],
    },
  ]);
  return {
    traces,
    layout: {
      xaxis: { title: { text: "ms per step", standoff: 6 }, range: [0, most] },
      yaxis: {
        tickvals: lanes.map((_, i) => i),
        ticktext: labels.map(plain),
        range: [-0.6, lanes.length - 0.4],
        ticks: "",
      },
    },
  };
}

const shortened = (text) => (text.length > 34 ? `${text.slice(0, 33)}…` : text);
