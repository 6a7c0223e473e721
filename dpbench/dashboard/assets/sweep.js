// A metric over a swept setting: for each method and budget, its best mean at each value.

/** A card for each data set and model on which the setting is swept. */
function sweeps(rows, metric, name) {
  const swept = rows.filter((row) => Number.isFinite(Number(row[name])));
  const found = grouped(swept, (row) => row.facet)
    .map((members) => groupsOf(members, measured(metric)).filter((group) => group.mean !== null))
    .map((groups) => envelopes(groups, metric, name))
    .filter((lines) => lines.length);
  if (!found.length) return [empty(`No selected runs sweep over ${name} and measure the metric.`)];
  const axes = metricAxes(
    found.map((lines) => lines.flat()),
    metric,
  );
  const xaxis = settingAxis(
    found.flat(2).map((group) => Number(group.first[name])),
    name,
  );
  const one = (lines) => sweepCard(lines, metric, name, { xaxis, yaxis: axes(lines.flat()) });
  return limited(found.map(one), 6);
}

/**
 * For each method and budget with several values of the setting: the groups with the best mean at
 * each value, in its order.
 */
function envelopes(groups, metric, name) {
  const sign = metric.better === "lower" ? -1 : 1;
  const identity = (group) =>
    [group.first.method, budgetOf(group), ...protocol(group, name)].join();
  return grouped(groups, identity)
    .map((members) =>
      grouped(members, ({ first }) => first[name])
        .map((same) => same.sort((a, b) => sign * (b.mean - a.mean))[0])
        .sort((a, b) => a.first[name] - b.first[name]),
    )
    .filter((line) => line.length > 1);
}

/** The swept settings that tell protocols apart, but for the one on the axis. */
const protocol = ({ first }, axis) =>
  data.filters
    .filter(({ name, swept }) => swept && name !== axis && !/^(method|optimizer)\./.test(name))
    .map(({ name }) => `${name}=${first[name]}`);

const budgetOf = ({ at }) => (Number.isFinite(at) ? `ε ${figures(at, 2)}` : at);

function sweepCard(found, metric, name, axes) {
  const { facet } = found[0][0].first;
  const protocols = found.map(([group]) => protocol(group, name));
  const lines = found.map((members, i) => {
    const { method } = members[0].first;
    const differing = protocols[i].filter((text, k) => protocols.some((all) => all[k] !== text));
    const text = [data.methods[method], budgetOf(members[0]), ...differing].join(", ");
    return { members, method, dash: DASHES[i % DASHES.length], text };
  });
  const trace = ({ members, method, dash }) => {
    const points = members.map((group) => pointOf(group, metric, Number(group.first[name])));
    return meansTrace(points, lookOf(method), { dash, mode: "lines+markers" });
  };
  const describe = () => ({ traces: lines.map(trace), layout: axes });
  return card(facet, `${metric.label} over ${name}, ${facet}`, "curve", describe, legend(lines));
}

/** The axis of a setting over all pictures: logarithmic for positive values far apart. */
function settingAxis(values, name) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const wide = least > 0 && most > 8 * least;
  const [low, high] = wide ? [Math.log10(least), Math.log10(most)] : [least, most];
  const margin = 0.06 * (high - low);
  const range = [low - margin, high + margin];
  return titled(plain(name), { type: wide ? "log" : "linear", range });
}
