// Means, intervals and fronts over the runs that pass the filters. Any subset of the seeds may be
// selected, so they are computed here and not when the page is written.

const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

/**
 * Half the width of Student's interval for a mean; null for fewer than two values.
 * t[k - 1]: the quantile for k degrees of freedom.
 */
function halfWidth(values, t) {
  const n = values.length;
  if (n < 2) return null;
  const centre = mean(values);
  const variance = values.reduce((sum, v) => sum + (v - centre) ** 2, 0) / (n - 1);
  return t[n - 2] * Math.sqrt(variance / n);
}

/**
 * n, mean and half width of a value over runs; runs that did not measure it (null) do not count.
 * As in the tables, there is no mean (null) where a run diverged or a value is not finite.
 */
function summary(runs, value, t) {
  const values = runs.map(value).filter((v) => v !== null && v !== undefined);
  const lost = runs.filter((run) => run.status !== "complete").length;
  const sound = lost === 0 && values.length > 0 && values.every(Number.isFinite);
  return {
    n: values.length,
    lost,
    mean: sound ? mean(values) : null,
    half: sound ? halfWidth(values, t) : null,
  };
}

/** Points {x, y} in order of x, and the better of those at the same x first. */
function ordered(points, better) {
  const sign = better === "lower" ? -1 : 1;
  return [...points].sort((a, b) => a.x - b.x || sign * (b.y - a.y));
}

/** The Pareto front of points with small x and good y, in order of x. */
function front(points, better) {
  const sign = better === "lower" ? -1 : 1;
  let best = -Infinity;
  return ordered(points, better).filter(({ y }) => {
    const gains = sign * y > best;
    if (gains) best = sign * y;
    return gains;
  });
}

/** The lists of items with the same key, in order of first appearance. */
const grouped = (items, key) => [...Map.groupBy(items, key).values()];
