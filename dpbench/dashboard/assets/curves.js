// A metric over the privacy budget: one card with a plot per data set and model.

/** Plots of a metric over epsilon, one per data set and model. */
function curves(rows, metric, page) {
  const value = (row) => row.metrics[page.data.metrics.indexOf(metric)];
  const measured = [...grouped(rows, (row) => row.facet).values()]
    .map((members) => groupsOf(members, value, page).filter((g) => g.measured || g.lost))
    .filter((groups) => groups.some((group) => group.measured));
  const axes = sharedAxes(measured, metric);
  const cards = measured.map((groups) => curve(groups, metric, axes, page));
  if (!cards.length) return [empty(`None of the selected runs has measured ${metric.label}.`)];
  return limited(cards, 6);
}

function curve(groups, metric, axes, page) {
  const { facet } = groups[0].first;
  const series = seriesOf(groups, page);
  const finite = groups.filter((group) => group.mean !== null);
  const over = `${metric.label} over epsilon, ${facet}`;
  const label = `${over}; the numbers are in the table below the picture`;
  const plot = finite.length
    ? picture(label, "curve", () => curvePicture(series, finite, metric, axes, page), page.open)
    : empty("Nothing to draw: every group contains a run that diverged.");
  return make(
    "article",
    { className: "card" },
    make("h3", {}, facet),
    shortLegend(series),
    plot,
    finite.length ? pictureExports(plot, over) : null,
    notes(groups, page),
    numbers(groups, metric, page),
  );
}

/** Notes below a plot: groups without a mean, epsilons at several deltas. */
function notes(groups, page) {
  return make("div", { className: "notes" }, excludedNote(groups, page), deltasNote(groups));
}

function excludedNote(groups, page) {
  const excluded = groups.filter((group) => group.mean === null);
  if (!excluded.length) return null;
  const links = excluded.map((g) => {
    const why = g.lost ? `${g.lost} of ${g.runs.length} diverged` : "not finite";
    const text = `${nameOf(g.first)}, ${epsilonText(g.first, page.state.accountant)} (${why})`;
    return button(text, () => page.open(g.runs[0].id), { className: "link" });
  });
  return make(
    "p",
    {},
    "Without a mean: ",
    links.flatMap((link, i) => (i ? ["; ", link] : [link])),
    ". Untick “diverged” under Status to average the others.",
  );
}

function deltasNote(groups) {
  const deltas = deltasOf(groups);
  if (deltas.length < 2) return null;
  const text =
    `These epsilons are at different δ (${deltas.join(", ")}) and not comparable, ` +
    "so no front is drawn.";
  return make("p", {}, text);
}

const deltasOf = (groups) => [
  ...new Set(groups.filter((g) => Number.isFinite(g.at)).map((g) => figures(g.first.delta))),
];

/** The numbers behind a plot, built when they are first opened. */
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
