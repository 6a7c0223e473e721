// Reliability diagrams.

/** A reliability diagram for each group whose records contain one. */
function reliability(rows) {
  const groups = groupsOf(rows, (row) => (row.bins ? 0 : null))
    .map((group) => ({ ...group, bins: pooled(group.runs) }))
    .filter(({ bins }) => bins);
  const none =
    "None of the selected runs has a reliability diagram: they have no classes, diverged, or " +
    "are older than this feature.";
  if (!groups.length) return [empty(none)];
  const most = Math.max(...groups.map(({ bins }) => largestShare(bins)));
  const cards = groups.map((group) => diagramCard(group, most));
  return limited(cards, 8);
}

const total = (bins) => bins.reduce((sum, [count]) => sum + count, 0);
const largestShare = (bins) => Math.max(...bins.map(([count]) => count)) / total(bins);

/** A card. most: the largest share of a bin in any diagram, as they share their axes. */
function diagramCard({ first, runs, bins }, most) {
  const said = ["test/ece", "test/mce"].flatMap((name) => {
    const metric = metricOf(name);
    const found = metric && summary(runs, measured(metric), data.t);
    return found?.n ? [`${metric.label} ${meanText(found, metric)}`] : [];
  });
  const title = `${first.name}, ${epsilonText(first)}`;
  return make(
    "article.card.small",
    make("h4", link(title, first.id)),
    make("p.sub", first.facet),
    diagram(`reliability diagram of ${title}, ${first.facet}`, bins, first, most),
    make("p.sub", said.join(" · ")),
  );
}

/** Accuracy at the top, the share of the examples at the bottom. */
const diagram = (label, bins, run, most = largestShare(bins)) =>
  picture(label, "diagram", () => {
    const unit = { range: [0, 1], tickvals: [0, 0.5, 1] };
    const accuracy = ([count, , right]) => right / count;
    const share = ([count]) => count / total(bins);
    const bar = colour(lookOf(run.method).colour);
    return {
      traces: [
        barTrace(bins, accuracy, bar, run),
        diagonalTrace(0, 1),
        { ...barTrace(bins, share, colour("muted"), run), yaxis: "y2" },
      ],
      layout: {
        xaxis: titled("confidence", { ...unit, anchor: "y2" }),
        yaxis: titled("accuracy", { ...unit, domain: [0.34, 1] }),
        yaxis2: titled("share", { domain: [0, 0.24], range: [0, 1.05 * most], nticks: 3 }),
        bargap: 0,
      },
    };
  });

function barTrace(bins, height, color, run) {
  const drawn = bins.map((bin, i) => ({ bin, i })).filter(({ bin: [count] }) => count);
  const text = ([count, confidence, right]) =>
    `confidence ${figures(confidence / count)}<br>accuracy ${figures(right / count)}<br>` +
    `${count} examples`;
  return {
    type: "bar",
    x: drawn.map(({ i }) => (i + 0.5) / bins.length),
    y: drawn.map(({ bin }) => height(bin)),
    width: 1 / bins.length,
    hoverinfo: "text",
    hovertext: drawn.map(({ bin }) => text(bin)),
    customdata: drawn.map(() => run.id),
    marker: { color, line: { color: colour("card"), width: 1 } },
  };
}
