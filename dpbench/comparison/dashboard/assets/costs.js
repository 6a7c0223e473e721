// Milliseconds per step, a card for each data set, model, batch size and machine.

const MOST_LANES = 24;

function costs(rows) {
  const timed = rows.filter((row) => row.dataset !== null && row.ms > 0);
  if (!timed.length) return [empty("None of the selected runs has recorded its time and steps.")];
  return limited(grouped(timed, (row) => `${row.facet} — ${row.machine}`).map(costCard), 6);
}

function costCard(rows) {
  const title = `${rows[0].facet} — ${rows[0].machine}`;
  const { execution } = rows[0];
  const lists = rows.map((row) => row.execution);
  const all = grouped(rows, (row) => [row.series, ...row.execution].join(" "))
    .map((runs) => costLane(runs, differing(runs[0].execution, lists)))
    .sort((a, b) => b.mean - a.mean);
  const lanes = all.slice(-MOST_LANES);
  const fastest = all.length > MOST_LANES ? `The ${MOST_LANES} fastest of ${all.length}. ` : "";
  const common = execution.filter((text) => !differing(execution, lists).includes(text));
  const above = make("p.sub", fastest + common.join(", "));
  const label = `milliseconds per step, ${title}`;
  const node = card(title, label, "cost", () => costPicture(lanes), above);
  node.querySelector(".picture").style.height = `${80 + 30 * lanes.length}px`;
  return node;
}

/** One line of the plot. A run that diverged has a valid time. */
function costLane(runs, how) {
  const timed = runs.map((run) => ({ ...run, status: "complete" }));
  const found = summary(timed, (run) => run.ms, data.t);
  return { runs, text: [runs[0].name, how.join(", ")].filter(Boolean).join(" · "), ...found };
}

function costPicture(lanes) {
  const yaxis = {
    tickvals: lanes.map((_, i) => i),
    ticktext: lanes.map((lane) => plain(shortened(lane.text, 22, 34))),
    range: [-0.6, lanes.length - 0.4],
    ticks: "",
  };
  const xaxis = titled("ms per step", { rangemode: "tozero" });
  return { traces: lanes.flatMap(laneTraces), layout: { xaxis, yaxis } };
}

/** A pale dot for each run, and the mean of all. */
function laneTraces({ runs, text, mean, half, n }, y) {
  const { method } = runs[0];
  const point = (x, run, more) => ({
    x,
    y,
    run: run.id,
    text: [text, `${figures(x)} ms per step${more}`],
  });
  const dots = runs.map((run) => point(run.ms, run, `, seed ${run.seed}`));
  const middle = { ...point(mean, runs[0], `, mean of ${n}`), above: half, below: half };
  return [
    meansTrace(dots, method, { mark: "circle", opacity: 0.35 }),
    meansTrace([middle], method, { way: "x" }),
  ];
}
