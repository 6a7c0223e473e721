// A metric over a swept setting, or over the seconds of a run: a line for each method and budget.

/** A card for each data set and model on which the setting is swept. */
function sweeps(rows, metric, name) {
  const swept = rows.filter((row) => Number.isFinite(Number(row[name])));
  const cards = linesBy(swept, metric, {
    titled: (row) => row.facet,
    lines: (groups) => envelopes(groups, metric, name),
  });
  if (!cards.length) return [empty(`No selected runs sweep over ${name} and measure the metric.`)];
  const place = ({ first }) => Number(first[name]);
  return lineCards(cards, metric, { name, place, told: (group) => protocol(group, name) });
}

/**
 * A card for each data set, model and machine: the best mean of a method at a budget among its
 * settings whose runs take, on average, no longer.
 */
function overSeconds(rows, metric) {
  const seconds = measured(metricOf("seconds"));
  const place = ({ runs }) => mean(runs.map(seconds));
  const timed = rows.filter((row) => seconds(row) > 0);
  const cards = linesBy(timed, metric, {
    titled: (row) => `${row.facet} — ${row.device}`,
    lines: (groups) =>
      grouped(groups, (group) => [group.first.method, budgetOf(group)].join()).map((members) =>
        front(
          members.map((group) => ({ x: place(group), y: group.mean, group })),
          metric.better,
        ).map(({ group }) => group),
      ),
  });
  if (!cards.length) return [empty("No selected runs have recorded their time and the metric.")];
  return lineCards(cards, metric, { name: "seconds", place, told: () => [] });
}

/** The cards that have lines: rows with the same title, as lines of groups. */
function linesBy(rows, metric, { titled, lines }) {
  return grouped(rows, titled)
    .map((members) => ({
      title: titled(members[0]),
      lines: lines(groupsOf(members, measured(metric)).filter(({ mean }) => mean !== null)),
    }))
    .filter((one) => one.lines.length);
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

/**
 * Cards whose pictures share their axes. name: of the horizontal one; place: of a group on it;
 * told: the settings of a line that a legend names where they differ.
 */
function lineCards(cards, metric, { name, place, told }) {
  const axes = metricAxes(
    cards.map(({ lines }) => lines.flat()),
    metric,
  );
  const xaxis = settingAxis(cards.flatMap(({ lines }) => lines.flat()).map(place), name);
  const one = ({ title, lines }) => {
    const layout = { xaxis, yaxis: axes(lines.flat()) };
    const shown = named(lines, told);
    const trace = ({ members, method, dash }) => {
      const points = members.map((group) => pointOf(group, metric, place(group)));
      return meansTrace(points, lookOf(method), { dash, mode: "lines+markers" });
    };
    const describe = () => ({ traces: shown.map(trace), layout });
    return card(title, `${metric.label} over ${name}, ${title}`, "curve", describe, legend(shown));
  };
  return limited(cards.map(one), 6);
}

/** The lines with their methods, dashes and texts. */
function named(lines, told) {
  const settings = lines.map(([group]) => told(group));
  return lines.map((members, i) => {
    const { method } = members[0].first;
    const differing = settings[i].filter((text, k) => settings.some((all) => all[k] !== text));
    const text = [data.methods[method], budgetOf(members[0]), ...differing].join(", ");
    return { members, method, dash: DASHES[i % DASHES.length], text };
  });
}

/** The axis of a setting over all pictures: logarithmic for positive values far apart. */
function settingAxis(values, name) {
  const least = Math.min(...values);
  const log = least > 0 && Math.max(...values) > 8 * least;
  return titled(plain(name), { type: log ? "log" : "linear", range: around(values, log) });
}
