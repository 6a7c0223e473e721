// The axes that small multiples share: epsilon all over a part, the metric as chosen.

const SCALES = {
  dataset: "same for a data set",
  all: "same for all",
  own: "of each picture",
};

/** What the pictures of a part share. cards: the groups of each, with a mean or without. */
function sharedAxes(cards, metric) {
  const finite = cards.flat().filter((group) => group.mean !== null);
  const key = ([{ first }]) =>
    ({ dataset: first.dataset, all: "" })[page.state.scale] ?? first.facet;
  const ranges = new Map(
    [...grouped(cards, key)].map(([name, some]) => [name, metricRange(some.flat(), metric)]),
  );
  return {
    epsilons: finite.map((group) => group.at).filter(Number.isFinite),
    range: (groups) => ranges.get(key(groups)),
  };
}

/** The ends of the metric's axis: all means with their intervals, and a margin. */
function metricRange(groups, metric) {
  const inside = (value) => (metric.percent ? Math.min(1, Math.max(0, value)) : value);
  const ends = groups
    .filter((group) => group.mean !== null)
    .flatMap(({ mean: m, half }) => [m, inside(m - (half ?? 0)), inside(m + (half ?? 0))]);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const margin = 0.06 * (high - low) || 0.05 * Math.abs(high) || 0.05;
  const factor = metric.percent ? 100 : 1;
  return ends.length ? [factor * (low - margin), factor * (high + margin)] : undefined;
}

/** The axis of a metric; without a range it fits its picture. */
const metricAxis = (metric, range) => ({
  title: { text: metric.percent ? `${metric.label}, %` : metric.label, standoff: 6 },
  ...(range ? { range } : {}),
});

const scaleChoice = () =>
  choice("Vertical axis", Object.entries(SCALES), page.state.scale, (value) =>
    choose({ scale: value }),
  );
