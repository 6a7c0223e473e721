// A metric over the budget.

/** Pictures of a metric over epsilon, one for each data set and model. */
function curves(rows, metric, page) {
  const value = (row) => row.metrics[page.data.metrics.indexOf(metric)];
  const facets = [...grouped(rows, (row) => row.facet)];
  const cards = facets.flatMap(([facet, members]) => {
    const groups = groupsOf(members, value, page).filter((group) => group.measured || group.lost);
    return groups.some((group) => group.measured) ? [curve(facet, groups, metric, page)] : [];
  });
  if (!cards.length) return [empty(`No run that is shown has measured ${metric.label}.`)];
  return limited(cards, 6);
}

function curve(facet, groups, metric, page) {
  const series = seriesOf(groups, page);
  const there = groups.filter((group) => group.mean !== null);
  const over = `${metric.label} over epsilon, ${facet}`;
  const label = `${over}; the numbers are in the table below the picture`;
  const plot = there.length
    ? picture(label, "curve", () => curvePicture(series, there, metric, page), page.open)
    : empty("Nothing to draw: every group has a run that diverged.");
  return make(
    "article",
    { className: "card" },
    make("h3", {}, facet),
    legend(series),
    plot,
    notes(groups, page),
    numbers(groups, metric, page),
  );
}

/** What must be said of a picture: runs that are in no mean, epsilons of several deltas. */
function notes(groups, page) {
  const lost = groups.filter((group) => group.mean === null);
  const deltas = deltasOf(groups);
  const left = lost.map((g) => {
    const why = g.lost ? `${g.lost} of ${g.runs.length} diverged` : "not finite";
    const text = `${nameOf(g.first)}, ${epsilonText(g.first, page.state.accountant)} (${why})`;
    return button(text, () => page.open(g.runs[0].id), { className: "link" });
  });
  return make(
    "div",
    { className: "notes" },
    left.length
      ? make(
          "p",
          {},
          "In no mean: ",
          left.flatMap((node, i) => (i ? ["; ", node] : [node])),
          ". Untick “diverged” under Status to average the others.",
        )
      : null,
    deltas.length > 1
      ? make(
          "p",
          {},
          `These epsilons are for several δ (${deltas.join(", ")}) and do not compare ` +
            "as they stand, so no front is drawn.",
        )
      : null,
  );
}

const deltasOf = (groups) => [
  ...new Set(groups.filter((g) => Number.isFinite(g.at)).map((g) => String(g.first.delta))),
];

/** The numbers behind a picture, made when they are asked for. */
function numbers(groups, metric, page) {
  const more = make(
    "details",
    { className: "numbers" },
    make("summary", {}, "Numbers and records"),
  );
  more.addEventListener("toggle", () => {
    if (more.children.length > 1) return;
    const lines = groups.map((g) => [
      button(nameOf(g.first), () => page.open(g.runs[0].id), { className: "link" }),
      epsilonText(g.first, page.state.accountant),
      figures(g.first.delta ?? "–"),
      g.first.guarantee,
      meanText(g, metric),
    ]);
    more.append(
      grid(
        ["method", "epsilon", "δ", "guarantee", `${metric.label} (n)`],
        lines,
        `${metric.label}, ${groups[0].first.facet}`,
      ),
    );
  });
  return more;
}

function curvePicture(series, there, metric, page) {
  const factor = metric.percent ? 100 : 1;
  const on = there.filter((g) => Number.isFinite(g.at));
  const words = STRIP.filter((word) => there.some((g) => g.at === word));
  const reach = ends(on.map((g) => g.at));
  const traces = [...frontTrace(on, metric, factor)];
  for (const one of series) {
    const members = one.members.filter((g) => g.mean !== null);
    const line = members.filter((g) => Number.isFinite(g.at)).sort((a, b) => a.at - b.at);
    if (line.length)
      traces.push(
        points(
          one,
          line,
          aside(line, series.indexOf(one), series.length, reach),
          "x",
          metric,
          factor,
          page,
        ),
      );
    const beside = members.filter((g) => !Number.isFinite(g.at));
    if (beside.length)
      traces.push(
        points(
          one,
          beside,
          spread(beside, series.indexOf(one), series.length, words),
          "x2",
          metric,
          factor,
          page,
        ),
      );
  }
  return {
    traces,
    layout: {
      ...budgetAxes(
        on.map((g) => g.at),
        words,
        page,
      ),
      yaxis: { title: { text: metric.percent ? `${metric.label}, %` : metric.label, standoff: 6 } },
      shapes: ceilings(there, factor, on.length, page),
    },
  };
}

/** Epsilons a little apart on the logarithmic axis, where methods at one epsilon would overlap. */
function aside(groups, lane, lanes, reach) {
  const step = Math.min(0.006, 0.03 / lanes) * (reach[1] - reach[0]);
  return groups.map((g) => g.at * 10 ** (step * (lane - (lanes - 1) / 2)));
}

/** Places in the strip beside the axis: one lane for each series, so that none hides another. */
const spread = (groups, lane, lanes, words) =>
  groups.map((g) => words.indexOf(g.at) + (0.7 * (lane + 0.5)) / lanes - 0.35);

function points(one, groups, x, xaxis, metric, factor, page) {
  const half = groups.map((g) => (g.half === null ? null : factor * g.half));
  return {
    type: "scatter",
    xaxis,
    x,
    y: groups.map((g) => factor * g.mean),
    mode: xaxis === "x" && groups.length > 1 ? "lines+markers" : "markers",
    line: { color: colour(one.look.colour), width: 1.8, dash: one.dash },
    marker: {
      color: colour(one.look.colour),
      size: 10,
      symbol: groups.map((g) =>
        g.first.guarantee === "approximate" ? `${one.look.mark}-open` : one.look.mark,
      ),
      line: { color: colour("card"), width: 1 },
    },
    error_y: {
      type: "data",
      array: half,
      thickness: 1.4,
      width: 4,
      color: colour(one.look.colour),
      visible: half.some((h) => h !== null),
    },
    hoverinfo: "text",
    hovertext: groups.map((g) => hover(g, metric, page)),
    customdata: groups.map((g) => g.runs[0].id),
  };
}

function hover(group, metric, page) {
  const row = group.first;
  const has = Number.isFinite(group.at) && row.delta !== null;
  const delta = has ? `, δ = ${figures(row.delta)}` : "";
  return [
    nameOf(row),
    `${epsilonText(row, page.state.accountant)}${delta} (${row.guarantee})`,
    `${metric.label} ${meanText(group, metric)}`,
    "select for the records",
  ]
    .map(plain)
    .join("<br>");
}

/** Only what is proven competes, at one delta: an approximate epsilon would win by being less. */
function frontTrace(on, metric, factor) {
  const proven = on
    .filter((g) => g.first.guarantee === "proven")
    .map((g) => ({ x: g.at, y: g.mean }));
  if (!metric.better || proven.length < 2 || deltasOf(on).length > 1) return [];
  const best = front(proven, metric.better);
  const last = { x: Math.max(...proven.map((p) => p.x)), y: best.at(-1).y };
  const path = last.x > best.at(-1).x ? [...best, last] : best;
  return [
    {
      type: "scatter",
      mode: "lines",
      x: path.map((p) => p.x),
      y: path.map((p) => factor * p.y),
      line: { shape: "hv", color: colour("front"), width: 9 },
      hoverinfo: "skip",
    },
  ];
}

/** What is reached without privacy, as a line across. */
const ceilings = (there, factor, on, page) =>
  (on ? there.filter((g) => g.at === "not private") : []).map((g) => ({
    type: "line",
    xref: "x domain",
    x0: 0,
    x1: 1,
    y0: factor * g.mean,
    y1: factor * g.mean,
    line: { color: colour(page.looks.get(g.first.method).colour), width: 1, dash: "dot" },
    layer: "below",
  }));

/** An axis of epsilon, and beside it a strip for what has none. */
function budgetAxes(values, words, page) {
  const split = values.length ? Math.max(0.5, 1 - 0.17 * words.length) : 0;
  const axis = {
    type: "log",
    domain: [0, words.length ? split - 0.03 : 1],
    range: ends(values),
    ...ticks(values),
    title: { text: `ε by ${page.data.accountants[page.state.accountant]}`, standoff: 8 },
  };
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
  return {
    ...(values.length ? { xaxis: axis } : { xaxis: { visible: false, domain: [0, 0.001] } }),
    ...(words.length ? { xaxis2: strip } : {}),
  };
}

/** The ends of an axis of epsilon, as powers of ten, with room beside the values. */
function ends(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)].map(Math.log10);
  const margin = Math.max(0.12, 0.08 * (high - low));
  return [low - margin, high + margin];
}

/** Round numbers on an axis of epsilon; the epsilons themselves where fewer than two lie there. */
function ticks(values) {
  const [low, high] = ends(values);
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
