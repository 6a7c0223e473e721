// A metric over the budget, and its differences to the baseline: a card a task, a curve a method.

/** Larger epsilons protect nobody: they do not stretch the axis, if there are others. */
const MOST_EPSILON = 20;

/** Epsilons of two methods are those of one budget up to this factor. */
const SAME_BUDGET = 1.15;

function curves(rows, metric) {
  const facets = grouped(rows, (row) => row.facet)
    .map((members) => groupsOf(members, measured(metric)).filter(({ n, lost }) => n || lost))
    .filter((groups) => groups.some(({ n }) => n));
  if (!facets.length) return [empty(`None of the selected runs has measured ${metric.label}.`)];
  const most = (groups) => new Set(groups.map(budgetOf)).size * groups.length;
  facets.sort((a, b) => most(b) - most(a));
  return limited(
    facets.map((groups) => curveCard(groups, metric)),
    6,
  );
}

function curveCard(groups, metric) {
  const { facet } = groups[0].first;
  const finite = groups.filter((group) => group.mean !== null);
  const below = [notes(groups), numbers(groups, metric)];
  if (!finite.length) {
    const why = empty("Nothing to draw: every group contains a run that diverged.");
    return make("article.card", make("h3", facet), why, below);
  }
  const sign = metric.better === "lower" ? -1 : 1;
  const lines = grouped(finite, ({ first }) => `${first.method} ${first.curve}`)
    .map((line) => line.sort((a, b) => a.at - b.at))
    .sort((a, b) => sign * (heightOf(b) - heightOf(a)));
  const several = new Set(lines.map(([{ first }]) => first.method)).size < lines.length;
  const textOf = ({ first }) => (several ? first.name : data.methods[first.method]);
  const series = placed(quietened(seriesOf(lines, textOf)));
  const describe = () => curvePicture(series.toReversed(), metric); // the first is drawn on top
  const label = `${metric.label} over epsilon, ${facet}`;
  return card(facet, label, `curve${gapsOf(series, metric).length ? ".tall" : ""}`, describe, {
    above: legend(series),
    below,
    said: () => saidOf(finite),
  });
}

/** The mean of a line at its largest budget. */
const heightOf = (line) => line.at(-1).mean;

/** Of many lines, all but the baseline and the best of those with an epsilon are grey. */
function quietened(series) {
  if (series.length <= MOST_COLOURED || view.focus) return series;
  const isPrivate = ({ members }) => members.some(({ at }) => Number.isFinite(at));
  const loud = series.filter((one) => isPrivate(one) && one.method !== data.baseline).slice(0, 3);
  const isLoud = (one) => loud.includes(one) || one.method === data.baseline || !isPrivate(one);
  return [...series.filter(isLoud), ...series.filter((one) => !isLoud(one))].map((one) => ({
    ...one,
    quiet: !isLoud(one),
  }));
}

/** What a saved picture says of its groups: budgets, seeds. */
function saidOf(groups) {
  const ends = (values) => {
    const sorted = [...new Set(values)].sort((a, b) => a - b);
    return sorted.length > 1 ? `${sorted[0]} to ${sorted.at(-1)}` : `${sorted[0]}`;
  };
  const epsilons = groups.map(({ at }) => at).filter(Number.isFinite);
  const budgets = epsilons.length ? `ε ${ends(epsilons.map((at) => Number(figures(at))))}` : "";
  const deltas = deltasOf(groups).map((delta) => `δ = ${delta}`);
  return [budgets, ...deltas, `n = ${ends(groups.map(({ n }) => n))} seeds`].filter(Boolean);
}

/** Means with their intervals, the means without privacy as lines, and the gaps below them. */
function curvePicture(series, metric) {
  const groups = series.flatMap(({ members }) => members);
  const budgeted = groups.filter(({ at }) => Number.isFinite(at));
  const words = data.reasons.filter((word) => groups.some(({ at }) => at === word));
  const gaps = gapsOf(series, metric);
  const unit = metric.percent ? ", %" : "";
  const values = titled(metric.label + unit, { domain: [gaps.length ? 0.5 : 0, 1] });
  const axes = { ...budgetAxes(budgeted, words, gaps.length), yaxis: values };
  const points = named(
    budgeted.map((group) => pointOf(group, metric, group.x)),
    axes.xaxis,
  );
  const pointAt = new Map(budgeted.map((group, i) => [group, points[i]]));
  const traces = series.flatMap(({ members, method, ...looks }, lane) => {
    const line = members.flatMap((group) => pointAt.get(group) ?? []);
    const beside = members.filter(({ at }) => !Number.isFinite(at));
    // Above a reason there is no scale, so each series has a lane.
    const placed = ({ at }) => words.indexOf(at) + (0.7 * (lane + 0.5)) / series.length - 0.35;
    const besides = beside.map((group) => pointOf(group, metric, placed(group)));
    return [
      meansTrace(line, method, { ...looks, mode: "lines+markers" }),
      meansTrace(besides, method, { ...looks, xaxis: "x2" }),
    ].filter(({ x }) => x.length);
  });
  const zero = { type: "line", xref: "x domain", x0: 0, x1: 1, yref: "y2", y0: 0, y1: 0 };
  const base = gaps.length ? [{ ...zero, line: { color: colour("muted"), width: 1 } }] : [];
  const below = titled(`minus ${data.methods[data.baseline]}`, { domain: [0, 0.42] });
  return {
    traces: [...traces, ...gaps],
    layout: {
      ...axes,
      ...(gaps.length && { yaxis2: below }),
      shapes: [...withoutPrivacy(groups, budgeted, metric), ...base],
    },
  };
}

/** The differences to the baseline at the same budget, paired by seed, as traces. */
function gapsOf(series, metric) {
  const value = measured(metric);
  const base = series
    .filter(({ method }) => method === data.baseline)
    .flatMap(({ members }) => members.filter(({ at }) => Number.isFinite(at)));
  const beside = ({ at, first }) =>
    base.find(
      (one) =>
        Math.max(one.at, at) <= SAME_BUDGET * Math.min(one.at, at) &&
        one.first.delta === first.delta &&
        one.first.protocol === first.protocol,
    );
  const point = (group) => {
    const other = beside(group);
    if (!other || other === group) return [];
    const bySeed = new Map(other.runs.map((run) => [run.seed, value(run)]));
    const pairs = group.runs.filter(({ seed }) => bySeed.get(seed) != null);
    const gap = summary(pairs, (run) => value(run) - bySeed.get(run.seed), data.t);
    if (gap.mean === null) return [];
    const found = pointOf({ ...group, ...gap }, { ...metric, signed: true }, group.x);
    const words = `minus ${data.methods[data.baseline]}: ${gapText(gap, metric)}`;
    return [{ ...found, text: [found.text[0], found.text[1], words] }];
  };
  return series
    .filter(({ method }) => method !== data.baseline)
    .map(({ members, method, ...looks }) => [members.flatMap(point), method, looks])
    .filter(([points]) => points.length)
    .map(([points, method, looks]) =>
      meansTrace(points, method, { ...looks, mode: "lines+markers", yaxis: "y2" }),
    );
}

/** The points, with the names and means of those that lie at the same place in their texts. */
function named(points, { range: [low, high] }) {
  const heights = points.map(({ y }) => y);
  const tall = Math.max(...heights) - Math.min(...heights) || 1;
  const near = (a, b) =>
    Math.abs(Math.log10(a.x / b.x)) < 0.025 * (high - low) && Math.abs(a.y - b.y) < 0.025 * tall;
  const also = ({ text: [name, , mean] }) => `also here: ${name}, ${mean}`;
  return points.map((point) => {
    const others = points.filter((other) => other !== point && near(point, other));
    return { ...point, text: [...point.text, ...others.map(also)] };
  });
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
function budgetAxes(budgeted, words, hasGaps) {
  const all = budgeted.map(({ at }) => at);
  const few = all.filter((at) => at <= MOST_EPSILON);
  const epsilons = few.length ? few : all;
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
  const budgets = grouped(
    epsilons.toSorted((a, b) => a - b),
    (at) => Number(at.toPrecision(2)),
  );
  const [low, high] = epsilons.length ? around(epsilons, true) : [0, 1];
  const beside = budgeted.some(({ at, x }) => at !== x) ? ", side by side" : "";
  const axis = titled(`ε by ${data.accountants[view.accountant]}${beside}`, {
    type: "log",
    domain: [0, words.length ? split - 0.03 : 1],
    range: [low, high],
    anchor: hasGaps ? "y2" : "y",
    ...(budgets.length <= 6
      ? { tickvals: budgets.map(([at]) => at), ticktext: budgets.map(([at]) => figures(at, 2)) }
      : { tickformat: "~g" }),
  });
  return {
    xaxis: epsilons.length ? axis : { visible: false, domain: [0, 0.001], range: [0, 1] },
    ...(words.length ? { xaxis2: strip } : {}),
  };
}

const deltasOf = (groups) => [
  ...new Set(groups.filter(({ at }) => Number.isFinite(at)).map(({ first }) => first.delta)),
];

/** Notes below a plot: groups without a mean or beyond the axis, epsilons at several deltas. */
function notes(groups) {
  const excluded = groups.filter((group) => group.mean === null);
  const links = excluded.flatMap(({ first, lost, runs }, i) => {
    const why = lost ? `${lost} of ${runs.length} diverged` : "not finite";
    return [i ? "; " : "", link(`${first.name}, ${epsilonText(first)} (${why})`, runs[0].id)];
  });
  const advice = ". Untick “diverged” under Status to average the others.";
  const deltas = deltasOf(groups);
  const text = `These epsilons are at different δ (${deltas.join(", ")}) and not comparable.`;
  const epsilons = groups.map(({ at }) => at).filter(Number.isFinite);
  const beyond = epsilons.filter((at) => at > MOST_EPSILON);
  const cut = beyond.length && beyond.length < epsilons.length;
  const outside = `Beyond ε ${MOST_EPSILON}, and only among the numbers: ${beyond.length}.`;
  return make(
    "div.notes",
    cut ? make("p", outside) : null,
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
