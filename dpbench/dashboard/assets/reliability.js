// Reliability diagrams.

/** A reliability diagram for each group whose records contain one. */
function reliability(rows, page) {
  const groups = groupsOf(rows, (row) => (row.bins ? 0 : null), page).filter((group) =>
    pooled(group.runs),
  );
  if (!groups.length)
    return [
      empty(
        "None of the selected runs has a reliability diagram: they have no classes, diverged, or " +
          "are older than this feature.",
      ),
    ];
  const bins = groups.map((group) => pooled(group.runs));
  const most = Math.max(...bins.map(largestShare));
  return limited(
    groups.map((group, i) => diagram(group, bins[i], most, page)),
    8,
  );
}

const total = (bins) => bins.reduce((sum, [count]) => sum + count, 0);
const largestShare = (bins) => Math.max(...bins.map(([count]) => count)) / total(bins);

/** A card. most: the largest share of a bin in any diagram, as they share their axes. */
function diagram(group, bins, most, page) {
  const row = group.first;
  const said = ["test/ece", "test/mce"].flatMap((name) => {
    const index = page.data.metrics.findIndex((metric) => metric.name === name);
    const found = index < 0 ? null : summary(group.runs, (run) => run.metrics[index], page.data.t);
    return found?.measured
      ? [`${name.slice(5).toUpperCase()} ${meanText(found, page.data.metrics[index])}`]
      : [];
  });
  const title = `${nameOf(row)}, ${epsilonText(row, page.state.accountant)}`;
  return make(
    "article",
    { className: "card small" },
    make(
      "h4",
      {},
      button(title, () => page.open(row.id), { className: "link" }),
    ),
    make("p", { className: "sub" }, row.facet),
    picture(
      `reliability diagram of ${title}, ${row.facet}`,
      "diagram",
      () => diagramPicture(bins, page.looks.get(row.method), most),
      () => page.open(row.id),
    ),
    make("p", { className: "sub" }, said.join(" · ")),
  );
}

function diagramPicture(bins, look, most = largestShare(bins)) {
  const all = total(bins);
  const full = bins.map(([count, , right], i) => ({ i, count, accuracy: right / count }));
  const drawn = full.filter((bin) => bin.count);
  const bar = {
    type: "bar",
    x: drawn.map((bin) => (bin.i + 0.5) / bins.length),
    width: 1 / bins.length,
    hoverinfo: "text",
    hovertext: drawn.map((bin) => binText(bin, bins[bin.i][1] / bin.count)),
    marker: { color: colour(look.colour), line: { color: colour("card"), width: 1 } },
  };
  const shares = {
    ...bar,
    y: drawn.map((bin) => bin.count / all),
    yaxis: "y2",
    marker: { color: colour("muted") },
  };
  return {
    traces: [{ ...bar, y: drawn.map((bin) => bin.accuracy) }, diagonalTrace(1), shares],
    layout: diagramLayout(most),
  };
}

const binText = ({ count, accuracy }, confidence) =>
  [`confidence ${figures(confidence)}`, `accuracy ${figures(accuracy)}`, `${count} examples`].join(
    "<br>",
  );

/** Accuracy at the top, the share of the examples at the bottom. */
function diagramLayout(most) {
  const unit = { range: [0, 1], tickvals: [0, 0.5, 1] };
  return {
    xaxis: { ...unit, title: { text: "confidence", standoff: 4 }, anchor: "y2" },
    yaxis: { ...unit, domain: [0.34, 1], title: { text: "accuracy", standoff: 4 } },
    yaxis2: {
      domain: [0, 0.24],
      range: [0, 1.05 * most],
      nticks: 3,
      title: { text: "share", standoff: 4 },
    },
    bargap: 0,
  };
}
