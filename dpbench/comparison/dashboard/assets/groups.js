// Groups of runs that differ only in the seed, and how pictures show them.

/** The most series that are all in colour. */
const MOST_COLOURED = 6;

/** How much of a power of ten many methods at one budget are spread over. */
const SIDE_BY_SIDE = 0.2;

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

/**
 * A group as a point of a picture: its mean and its interval, in the unit of the metric.
 * metric: `signed` for differences.
 */
function pointOf(group, metric, x) {
  const { first: row, mean, half, runs } = group;
  const factor = metric.percent ? 100 : 1;
  // No accuracy is below 0 or above 100 %, whatever the interval.
  const isShare = metric.percent && !metric.signed;
  const end = (room) => (half === null ? null : factor * (isShare ? Math.min(half, room) : half));
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
      ...settingsOf(row),
      ...(row.tables ? [`from ${row.tables}`] : []),
      "select to see the records",
    ],
    run: runs[0].id,
  };
}

/** The settings of a run in which the runs of the page differ, a few on a line. */
function settingsOf({ group }) {
  const settings = data.settings[group];
  const own = data.filters
    .filter(({ name, swept }) => swept && settings[name])
    .map(({ name }) => `${name}=${settings[name]}`);
  return grouped([...own.entries()], ([place]) => Math.floor(place / 3)).map((some) =>
    some.map(([, text]) => text).join(", "),
  );
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

/** The series with each group's place `x`: its epsilon, or beside it if many have one budget. */
function placed(series) {
  const groups = series.flatMap(({ members }) => members.filter(({ at }) => Number.isFinite(at)));
  const isOne = new Set(groups.map(budgetOf)).size === 1 && series.length > MOST_COLOURED;
  return series.map((one, lane) => {
    const beside = SIDE_BY_SIDE * ((lane + 0.5) / series.length - 0.5);
    const place = ({ at }) => (isOne ? at * 10 ** beside : at);
    return { ...one, members: one.members.map((group) => ({ ...group, x: place(group) })) };
  });
}

/** Of texts in one of several lists, those that are not the same in all. */
const differing = (texts, lists) =>
  texts.filter((text, place) => lists.some((list) => list[place] !== text));
