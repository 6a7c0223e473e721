// A metric over the privacy budget: a card for each data set and model.

function curves(rows, metric) {
  const facets = grouped(rows, (row) => row.facet)
    .map((members) => groupsOf(members, measured(metric)).filter(({ n, lost }) => n || lost))
    .filter((groups) => groups.some(({ n }) => n));
  if (!facets.length) return [empty(`None of the selected runs has measured ${metric.label}.`)];
  const axes = metricAxes(facets, metric);
  return limited(
    facets.map((groups) => curveCard(groups, metric, axes(groups))),
    6,
  );
}

function curveCard(groups, metric, yaxis) {
  const { facet } = groups[0].first;
  const lines = grouped(groups, ({ first }) => first.series);
  const series = seriesOf(lines, ({ first }) => first.name);
  const finite = groups.filter((group) => group.mean !== null);
  const above = legend(series);
  const below = [notes(groups), numbers(groups, metric)];
  if (!finite.length) {
    const why = empty("Nothing to draw: every group contains a run that diverged.");
    return make("article.card", make("h3", facet), above, why, below);
  }
  const describe = () => curvePicture(series, finite, metric, yaxis);
  return card(facet, `${metric.label} over epsilon, ${facet}`, "curve", describe, above, below);
}

/** Means with their intervals, the Pareto front, and the means without privacy as lines. */
function curvePicture(series, groups, metric, yaxis) {
  const budgeted = groups.filter(({ at }) => Number.isFinite(at));
  const words = data.reasons.filter((word) => groups.some(({ at }) => at === word));
  const axes = { ...budgetAxes(budgeted, words), yaxis };
  const points = named(
    budgeted.map((group) => pointOf(group, metric, group.at)),
    axes,
  );
  const pointAt = new Map(budgeted.map((group, i) => [group, points[i]]));
  const traces = series.flatMap(({ members, method, dash }, lane) => {
    const line = members.flatMap((group) => pointAt.get(group) ?? []).sort((a, b) => a.x - b.x);
    const beside = members.filter(({ at, mean }) => mean !== null && !Number.isFinite(at));
    // Above a reason there is no scale, so each series has a lane.
    const placed = ({ at }) => words.indexOf(at) + (0.7 * (lane + 0.5)) / series.length - 0.35;
    const mode = line.length > 1 ? "lines+markers" : "markers";
    return [
      meansTrace(line, method, { dash, mode, xaxis: "x" }),
      groupsTrace(beside, metric, placed, { method, xaxis: "x2" }),
    ].filter(({ x }) => x.length);
  });
  const shapes = withoutPrivacy(groups, budgeted, metric);
  return {
    traces: [...frontTrace(budgeted, metric), ...traces],
    layout: { ...axes, shapes, annotations: names(points, axes) },
  };
}

/** The front of proven epsilons at one delta; an approximate one would win by being too small. */
function frontTrace(budgeted, metric) {
  const proven = budgeted.filter(({ first }) => first.guarantee === "proven");
  if (!metric.better || proven.length < 2 || deltasOf(budgeted).length > 1) return [];
  const points = proven.map((group) => ({ x: group.at, y: pointOf(group, metric).y }));
  const path = front(points, metric.better).map(({ x, y }) => [x, y]);
  const end = [Math.max(...points.map(({ x }) => x)), path.at(-1)[1]];
  return [lineTrace([...path, end], { shape: "hv", color: colour("front"), width: 9 })];
}

/** The means of non-private groups as horizontal lines, if a group of their protocol is private. */
function withoutPrivacy(groups, budgeted, metric) {
  const protocols = budgeted.map(({ first }) => first.protocol);
  return groups
    .filter(({ at, first }) => at === "not private" && protocols.includes(first.protocol))
    .map((group) => {
      const { y } = pointOf(group, metric);
      const color = colour(lookOf(group.first.method).colour);
      const line = { color, width: 1, dash: "dot" };
      return { type: "line", xref: "x domain", x0: 0, x1: 1, y0: y, y1: y, line, layer: "below" };
    });
}

/** The logarithmic axis of epsilon, and beside it a strip for groups without one. */
function budgetAxes(budgeted, words) {
  const epsilons = budgeted.map(({ at }) => at);
  const split = epsilons.length ? Math.max(0.5, 1 - 0.17 * words.length) : 0;
  const strip = {
    domain: [split, 1],
    range: [-0.5, words.length - 0.5],
    tickvals: words.map((_, i) => i),
    ticktext: words.map((word) => word.replace(" ", "<br>")),
    showgrid: false,
    showline: false,
    ticks: "",
    anchor: "y",
  };
  const [low, high] = around(epsilons, true);
  const axis = titled(`ε by ${data.accountants[view.accountant]}`, {
    type: "log",
    domain: [0, words.length ? split - 0.03 : 1],
    range: [low, high],
    tickformat: "~g",
    // Over a few powers of ten, 1, 2 and 5 of each; otherwise Plotly's own choice is as good.
    ...(high - low > 1 && high - low < 3 && { dtick: "D2" }),
  });
  return {
    xaxis: epsilons.length ? axis : { visible: false, domain: [0, 0.001] },
    ...(words.length ? { xaxis2: strip } : {}),
  };
}

const deltasOf = (groups) => [
  ...new Set(groups.filter(({ at }) => Number.isFinite(at)).map(({ first }) => first.delta)),
];

/** Notes below a plot: groups without a mean, epsilons at several deltas. */
function notes(groups) {
  const excluded = groups.filter((group) => group.mean === null);
  const links = excluded.flatMap(({ first, lost, runs }, i) => {
    const why = lost ? `${lost} of ${runs.length} diverged` : "not finite";
    return [i ? "; " : "", link(`${first.name}, ${epsilonText(first)} (${why})`, runs[0].id)];
  });
  const advice = ". Untick “diverged” under Status to average the others.";
  const deltas = deltasOf(groups);
  const text =
    `These epsilons are at different δ (${deltas.join(", ")}) and not comparable, ` +
    "so no front is drawn.";
  return make(
    "div.notes",
    links.length ? make("p", "Without a mean: ", links, advice) : null,
    deltas.length > 1 ? make("p", text) : null,
  );
}

/** The numbers behind a plot. */
function numbers(groups, metric) {
  const head = ["method", "epsilon", "δ", "guarantee", `${metric.label} (n)`];
  const line = ({ first, runs, ...found }) => ({
    cells: [
      { text: first.name, run: runs[0].id },
      epsilonText(first),
      first.delta,
      first.guarantee,
      meanText(found, metric),
    ],
  });
  const caption = `${metric.label}, ${groups[0].first.facet}`;
  const table = () => [grid(head, groups.map(line), caption)];
  return folded("details.numbers", "Numbers and records", table);
}
