// The axis of epsilon, logarithmic, and beside it a strip for groups without one.

/** An axis of epsilon, and beside it a strip for groups without one. */
function budgetAxes(values, words, page) {
  const split = values.length ? Math.max(0.5, 1 - 0.17 * words.length) : 0;
  const hidden = { visible: false, domain: [0, 0.001] };
  return {
    xaxis: values.length ? epsilonAxis(values, words.length ? split - 0.03 : 1, page) : hidden,
    ...(words.length ? { xaxis2: stripAxis(words, split) } : {}),
  };
}

const epsilonAxis = (values, end, page) => ({
  type: "log",
  domain: [0, end],
  range: logRange(values),
  ...ticks(values),
  title: { text: `ε by ${page.data.accountants[page.state.accountant]}`, standoff: 8 },
});

const stripAxis = (words, start) => ({
  domain: [start, 1],
  range: [-0.5, words.length - 0.5],
  tickvals: words.map((_, i) => i),
  ticktext: words.map((word) => word.replace(" ", "<br>")),
  showgrid: false,
  showline: false,
  ticks: "",
  anchor: "y",
});

/** Epsilons a little apart on the logarithmic axis, where methods at one epsilon would overlap. */
function dodged(groups, lane, lanes, range) {
  const step = Math.min(0.006, 0.03 / lanes) * (range[1] - range[0]);
  return groups.map((g) => g.at * 10 ** (step * (lane - (lanes - 1) / 2)));
}

/** Places in the strip beside the axis: one lane for each series, so that none hides another. */
const inStrip = (groups, lane, lanes, words) =>
  groups.map((g) => words.indexOf(g.at) + (0.7 * (lane + 0.5)) / lanes - 0.35);

/** The range of an axis of epsilon, in powers of ten, with a margin around the values. */
function logRange(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)].map(Math.log10);
  const margin = Math.max(0.12, 0.08 * (high - low));
  return [low - margin, high + margin];
}

/** Round numbers on an axis of epsilon; the epsilons themselves where fewer than two lie there. */
function ticks(values) {
  const [low, high] = logRange(values);
  const factors = high - low > 3 ? [1] : [1, 2, 5];
  const round = [-4, -3, -2, -1, 0, 1, 2, 3, 4, 5].flatMap((power) =>
    factors.map((factor) => Number(`${factor}e${power}`)),
  );
  const inside = round.filter((value) => value >= 10 ** low && value <= 10 ** high);
  const candidates = [...new Set(values.map((value) => figures(value, 2)))].map(Number);
  const tickvals =
    inside.length > 1
      ? inside
      : [Math.min(...candidates), Math.max(...candidates)].filter(
          (v, i, all) => !i || v > 1.06 * all[0],
        );
  return { tickvals, ticktext: tickvals.map((value) => figures(value)) };
}
