// A metric over a swept setting: for each method and budget, its best mean at each value.

/** A card per data set and model on which the setting is swept. */
function sweepCards(rows, metric, name) {
  const value = (row) => row.metrics[data.metrics.indexOf(metric)];
  const swept = rows.filter((row) => Number.isFinite(Number(row[name])));
  const found = [...grouped(swept, (row) => row.facet).values()]
    .map((members) => groupsOf(members, value, page).filter((group) => group.mean !== null))
    .map((groups) => envelopes(groups, metric, name))
    .filter((lines) => lines.length);
  const axes = sharedAxes(
    found.map((lines) => lines.flat()),
    metric,
  );
  const values = found.flat(2).map((group) => Number(group.first[name]));
  const cards = found.map((lines) => sweepCard(lines, metric, name, { ...axes, values }));
  if (!cards.length) return [empty(`No selected runs sweep over ${name} and measure the metric.`)];
  return limited(cards, 6);
}

/**
 * For each method and budget with several values of the setting: the groups with the best mean at
 * each value, in its order.
 */
function envelopes(groups, metric, name) {
  const sign = metric.better === "lower" ? -1 : 1;
  const identity = (g) => [g.first.method, budgetOf(g), ...protocol(g, name)].join();
  const budgets = grouped(groups, identity);
  const lines = [...budgets.values()].map((members) => {
    const best = [...grouped(members, (g) => g.first[name]).values()].map(
      (same) => same.sort((a, b) => sign * (b.mean - a.mean))[0],
    );
    return best.sort((a, b) => a.first[name] - b.first[name]);
  });
  return lines.filter((line) => line.length > 1);
}

/** The swept settings that tell protocols apart, but for the one on the axis. */
const protocol = ({ first }, axis) =>
  data.swept
    .filter(({ name }) => name !== axis && !/^(method|optimizer)\./.test(name))
    .map(({ name }) => `${name}=${first[name]}`);

const budgetOf = (group) =>
  Number.isFinite(group.at) ? `ε ${figures(group.at, 2)}` : String(group.at);

function sweepCard(found, metric, name, axes) {
  const { facet } = found[0][0].first;
  const protocols = found.map(([group]) => protocol(group, name));
  const lines = found.map((members, i) => ({
    members,
    look: page.looks.get(members[0].first.method),
    dash: DASHES[i % DASHES.length],
    text: [
      ...[nameOfMethod(members[0].first.method), budgetOf(members[0])],
      ...protocols[i].filter((text, k) => protocols.some((other) => other[k] !== text)),
    ].join(", "),
  }));
  const label = `${metric.label} over ${name}, ${facet}`;
  const plot = picture(label, "curve", () => sweepPicture(lines, metric, name, axes), page.open);
  return make(
    "article",
    { className: "card" },
    make("h3", {}, facet),
    shortLegend(lines),
    plot,
    pictureExports(plot, label),
  );
}

function sweepPicture(lines, metric, name, axes) {
  const drawing = { metric, factor: metric.percent ? 100 : 1, page };
  return {
    traces: lines.map((line) => ({
      ...meansTrace(
        line,
        line.members,
        line.members.map((g) => Number(g.first[name])),
        "x",
        drawing,
      ),
    })),
    layout: {
      xaxis: { ...settingAxis(axes.values), title: { text: plain(name), standoff: 8 } },
      yaxis: metricAxis(metric, axes.range(lines.flatMap((line) => line.members))),
    },
  };
}

/** The axis of a setting over all pictures: logarithmic for positive values far apart. */
function settingAxis(values) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const wide = least > 0 && most > 8 * least;
  const [low, high] = wide ? [Math.log10(least), Math.log10(most)] : [least, most];
  const margin = 0.06 * (high - low);
  return { type: wide ? "log" : "linear", range: [low - margin, high + margin] };
}
