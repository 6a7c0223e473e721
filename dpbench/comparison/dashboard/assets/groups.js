// Groups of runs that differ only in the seed, and how pictures show them.

/** Where a run is: at an epsilon, or above the reason that its record gives instead. */
const budget = ({ axis }) => axis[view.accountant] || data.reasons[0];

const epsilonText = (row) => {
  const text = row.epsilon[view.accountant];
  return Number.isFinite(row.axis[view.accountant]) ? `ε = ${text}` : text;
};

/** The groups with their means; a run that was repeated with diagnostics counts once. */
function groupsOf(rows, value) {
  return grouped(rows, (row) => row.group).map((all) => {
    const one = (same) => same.find((run) => value(run) != null) ?? same[0];
    const runs = grouped(all, (run) => run.seed).map(one);
    return { runs, first: runs[0], at: budget(runs[0]), ...summary(runs, value, data.t) };
  });
}

const metricOf = (name) => data.metrics.find((metric) => metric.name === name);

const measured = (metric) => (row) => row.metrics[data.metrics.indexOf(metric)];

/** A group as a point of a picture: its mean and its interval, in the unit of the metric. */
function pointOf(group, metric, x) {
  const { first: row, mean, half, runs } = group;
  const factor = metric.percent ? 100 : 1;
  // No accuracy is below 0 or above 100 %, whatever the interval.
  const end = (room) =>
    half === null ? null : factor * (metric.percent ? Math.min(half, room) : half);
  const delta = Number.isFinite(group.at) ? `, δ = ${row.delta}` : "";
  return {
    x,
    method: row.method,
    y: factor * mean,
    above: end(1 - mean),
    below: end(mean),
    open: ["approximate", "claimed"].includes(row.guarantee),
    text: [
      row.name,
      `${epsilonText(row)}${delta} (${row.guarantee})`,
      `${metric.label} ${meanText(group, metric)}`,
      "select to see the records",
    ],
    run: runs[0].id,
  };
}

/** Lines of groups as series of a plot: colour and marker by method, dashes by settings. */
function seriesOf(lines, textOf) {
  const counts = {};
  return lines.map((members) => {
    const { method } = members[0].first;
    counts[method] = (counts[method] ?? -1) + 1;
    return { members, method, text: textOf(members[0]), dash: dashOf(counts[method]) };
  });
}

/** Of texts in one of several lists, those that are not the same in all. */
const differing = (texts, lists) =>
  texts.filter((text, place) => lists.some((list) => list[place] !== text));

/** Groups of a method at their places on the horizontal axis. */
function groupsTrace(groups, metric, place, { method, ...settings }) {
  const points = groups.map((group) => pointOf(group, metric, place(group)));
  return meansTrace(points, method, settings);
}

/**
 * The axes of the metric for pictures that share them as chosen: for all, for a data set, or not.
 * cards: the groups of each picture.
 */
function metricAxes(cards, metric) {
  const key = ([{ first }]) => ({ dataset: first.dataset, all: "" })[view.scale] ?? first.facet;
  const ranges = new Map();
  for (const [name, some] of Map.groupBy(cards, key))
    ranges.set(name, metricRange(some.flat(), metric));
  const label = metric.percent ? `${metric.label}, %` : metric.label;
  return (groups) => titled(label, { range: ranges.get(key(groups)) });
}

/** The ends of the metric's axis: all means with their intervals, and a margin. */
function metricRange(groups, metric) {
  const points = groups.filter(({ mean }) => mean !== null).map((one) => pointOf(one, metric, 0));
  const ends = points.flatMap(({ y, above, below }) => [y - below, y + above]);
  return ends.length ? around(ends) : undefined;
}
