// A metric over a swept setting, or over the seconds of a run: a line for each method and budget.

/** A card for each data set and model on which the setting is swept. */
function sweeps(rows, metric, name) {
  const swept = rows.filter((row) => Number.isFinite(Number(row[name])));
  return lineCards(swept, metric, {
    name,
    titleOf: ({ facet }) => facet,
    place: ({ first }) => Number(first[name]),
    told: (group) => protocol(group, name),
    best: bestAtEach,
    none: `No selected runs sweep over ${name} and measure the metric.`,
  });
}

/** The best point at each x, if there are several. */
function bestAtEach(points, better) {
  const line = ordered(points, better).filter(({ x }, i, all) => x !== all[i - 1]?.x);
  return line.length > 1 ? line : [];
}

/**
 * A card for each data set, model and machine: the best mean of a method at a budget among its
 * settings whose runs take, on average, no longer.
 */
function overSeconds(rows, metric) {
  const seconds = measured(metricOf("seconds"));
  const timed = rows.filter((row) => seconds(row) > 0);
  return lineCards(timed, metric, {
    name: "seconds",
    titleOf: ({ facet, device }) => `${facet} — ${device}`,
    place: ({ runs }) => mean(runs.map(seconds)),
    told: () => [],
    best: front,
    none: "No selected runs have recorded their time and the metric.",
  });
}

/** The swept settings that tell protocols apart, but for the one on the axis. */
const protocol = ({ first }, axis) =>
  data.filters
    .filter(({ name, swept }) => swept && name !== axis && !/^(method|optimizer)\./.test(name))
    .map(({ name }) => `${name}=${first[name]}`);

const budgetOf = ({ at }) => (Number.isFinite(at) ? `ε ${figures(at, 2)}` : at);

/**
 * Cards of lines. name, place: of the horizontal axis, and
 * of a group on it; titleOf: the card of a row; told: the settings that tell lines of a method and
 * budget apart; best: the points {x, y} of a line; none: what is said where there is no line.
 */
function lineCards(rows, metric, { name, titleOf, place, told, best, none }) {
  const linesOf = (members) => {
    const groups = groupsOf(members, measured(metric)).filter(({ mean }) => mean !== null);
    const points = groups.map((group) => ({ ...group, x: place(group), y: group.mean }));
    const identity = (group) => [group.first.method, budgetOf(group), ...told(group)].join();
    const lines = grouped(points, identity).map((line) => best(line, metric.better));
    return lines.filter((line) => line.length);
  };
  const cards = grouped(rows, titleOf)
    .map((members) => ({ title: titleOf(members[0]), lines: linesOf(members) }))
    .filter(({ lines }) => lines.length);
  if (!cards.length) return [empty(none)];
  const unit = metric.percent ? ", %" : "";
  const one = ({ title, lines }) => {
    const groups = lines.flat();
    const yaxis = titled(metric.label + unit);
    const layout = { xaxis: settingAxis(groups.map(place), name), yaxis };
    const settings = lines.map(([group]) => told(group));
    const shown = seriesOf(lines, (group) =>
      [data.methods[group.first.method], budgetOf(group), ...differing(told(group), settings)].join(
        ", ",
      ),
    );
    const trace = ({ members, method, dash }) => {
      const points = members.map((group) => pointOf(group, metric, place(group)));
      return meansTrace(points, method, { dash, mode: "lines+markers" });
    };
    const describe = () => ({ traces: shown.map(trace), layout });
    const parts = { above: legend(shown), said: () => saidOf(groups) };
    return card(title, `${metric.label} over ${name}, ${title}`, "curve", describe, parts);
  };
  return limited(cards.map(one), 6);
}

/** The axis of a setting: logarithmic for positive values far apart. */
function settingAxis(values, name) {
  const least = Math.min(...values);
  const log = least > 0 && Math.max(...values) > 8 * least;
  return titled(plain(name), { type: log ? "log" : "linear", range: around(values, log) });
}
