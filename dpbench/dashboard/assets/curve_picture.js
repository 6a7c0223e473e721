// The traces of a metric over epsilon: means with their intervals, the Pareto front, the baselines.

function curvePicture(series, finite, metric, axes, page) {
  const factor = metric.percent ? 100 : 1;
  const budgeted = finite.filter((g) => Number.isFinite(g.at));
  const { epsilons } = axes;
  const words = STRIP.filter((word) => finite.some((g) => g.at === word));
  const drawing = { metric, factor, page, lanes: series.length, words, range: logRange(epsilons) };
  return {
    traces: [
      ...frontTrace(budgeted, metric, factor),
      ...series.flatMap((one, lane) => seriesTraces(one, lane, drawing)),
    ],
    layout: {
      ...budgetAxes(budgeted.length ? epsilons : [], words, page),
      yaxis: metricAxis(metric, axes.range(finite)),
      shapes: baselines(finite, factor, budgeted, page),
    },
  };
}

/** The means of one series: on the axis of epsilon, and in the strip beside it. */
function seriesTraces(one, lane, drawing) {
  const { lanes, range, words } = drawing;
  const members = one.members.filter((g) => g.mean !== null);
  const line = members.filter((g) => Number.isFinite(g.at)).sort((a, b) => a.at - b.at);
  const beside = members.filter((g) => !Number.isFinite(g.at));
  const traces = [];
  if (line.length)
    traces.push(meansTrace(one, line, dodged(line, lane, lanes, range), "x", drawing));
  if (beside.length)
    traces.push(meansTrace(one, beside, inStrip(beside, lane, lanes, words), "x2", drawing));
  return traces;
}

function meansTrace(one, groups, x, xaxis, { metric, factor, page }) {
  const half = groups.map((g) => (g.half === null ? null : factor * g.half));
  // No accuracy is below 0 or above 100 %, whatever the interval.
  const most = (g, i, room) => (half[i] === null ? null : Math.min(half[i], factor * room(g)));
  const [above, below] = metric.percent
    ? [
        groups.map((g, i) => most(g, i, () => 1 - g.mean)),
        groups.map((g, i) => most(g, i, () => g.mean)),
      ]
    : [half, half];
  const color = colour(one.look.colour);
  const { mark } = one.look;
  const unproven = (g) => ["approximate", CLAIMED].includes(g.first.guarantee);
  return {
    type: "scatter",
    xaxis,
    x,
    y: groups.map((g) => factor * g.mean),
    mode: xaxis === "x" && groups.length > 1 ? "lines+markers" : "markers",
    line: { color, width: 1.8, dash: one.dash },
    marker: {
      color,
      size: 10,
      symbol: groups.map((g) => (unproven(g) ? `${mark}-open` : mark)),
      line: { color: colour("card"), width: 1 },
    },
    error_y: {
      type: "data",
      symmetric: false,
      array: above,
      arrayminus: below,
      thickness: 1.4,
      width: 4,
      color,
      visible: half.some((h) => h !== null),
    },
    hoverinfo: "text",
    hovertext: groups.map((g) => hover(g, metric, page)),
    customdata: groups.map((g) => g.runs[0].id),
  };
}

function hover(group, metric, page) {
  const row = group.first;
  const has = Number.isFinite(group.at) && row.delta !== null;
  const delta = has ? `, δ = ${figures(row.delta)}` : "";
  return [
    nameOf(row),
    `${epsilonText(row, page.state.accountant)}${delta} (${row.guarantee})`,
    `${metric.label} ${meanText(group, metric)}`,
    "select to see the records",
  ]
    .map(plain)
    .join("<br>");
}

/** The front of proven epsilons at one delta; an approximate one would win by being too small. */
function frontTrace(budgeted, metric, factor) {
  const proven = budgeted
    .filter((g) => g.first.guarantee === "proven")
    .map((g) => ({ x: g.at, y: g.mean }));
  if (!metric.better || proven.length < 2 || deltasOf(budgeted).length > 1) return [];
  const best = front(proven, metric.better);
  const last = { x: Math.max(...proven.map((p) => p.x)), y: best.at(-1).y };
  const path = last.x > best.at(-1).x ? [...best, last] : best;
  return [
    {
      type: "scatter",
      mode: "lines",
      x: path.map((p) => p.x),
      y: path.map((p) => factor * p.y),
      line: { shape: "hv", color: colour("front"), width: 9 },
      hoverinfo: "skip",
    },
  ];
}

/** The means of non-private groups as horizontal lines, if a group of their protocol is private. */
const baselines = (finite, factor, budgeted, page) =>
  finite
    .filter(
      ({ at, first }) =>
        at === "not private" && budgeted.some((g) => g.first.protocol === first.protocol),
    )
    .map((g) => ({
      type: "line",
      xref: "x domain",
      x0: 0,
      x1: 1,
      y0: factor * g.mean,
      y1: factor * g.mean,
      line: { color: colour(page.looks.get(g.first.method).colour), width: 1, dash: "dot" },
      layer: "below",
    }));
