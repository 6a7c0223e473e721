// Reliability diagrams.

/** A reliability diagram for each group whose records hold one. */
function reliability(rows, page) {
  const groups = groupsOf(rows, (row) => (row.bins ? 0 : null), page).filter((group) =>
    pooled(group.runs),
  );
  if (!groups.length)
    return [
      empty(
        "No run that is shown holds a reliability diagram: " +
          "it has no classes, diverged, or is older than that.",
      ),
    ];
  return limited(
    groups.map((group) => diagram(group, page)),
    8,
  );
}

function diagram(group, page) {
  const row = group.first;
  const bins = pooled(group.runs);
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
      () => diagramPicture(bins, page.looks.get(row.method)),
      () => page.open(row.id),
    ),
    make("p", { className: "sub" }, said.join(" · ")),
  );
}

function diagramPicture(bins, look) {
  const total = bins.reduce((sum, [count]) => sum + count, 0);
  const full = bins.map(([count], i) => ({ count, i })).filter((bin) => bin.count);
  const centre = ({ i }) => (i + 0.5) / bins.length;
  const accuracy = ({ count, i }) => bins[i][2] / count;
  const text = full.map((bin) =>
    [
      `confidence ${figures(bins[bin.i][1] / bin.count)}`,
      `accuracy ${figures(accuracy(bin))}`,
      `${bin.count} examples`,
    ].join("<br>"),
  );
  const bar = {
    type: "bar",
    x: full.map(centre),
    width: 1 / bins.length,
    hoverinfo: "text",
    hovertext: text,
    marker: { color: colour(look.colour), line: { color: colour("card"), width: 1 } },
  };
  const ends = { range: [0, 1], tickvals: [0, 0.5, 1] };
  return {
    traces: [
      { ...bar, y: full.map(accuracy) },
      {
        type: "scatter",
        mode: "lines",
        x: [0, 1],
        y: [0, 1],
        line: { color: colour("ink"), width: 1.2, dash: "dash" },
        hoverinfo: "skip",
      },
      {
        ...bar,
        y: full.map((bin) => bin.count / total),
        yaxis: "y2",
        marker: { color: colour("muted") },
      },
    ],
    layout: {
      xaxis: { ...ends, title: { text: "confidence", standoff: 4 }, anchor: "y2" },
      yaxis: { ...ends, domain: [0.34, 1], title: { text: "accuracy", standoff: 4 } },
      yaxis2: {
        domain: [0, 0.24],
        rangemode: "tozero",
        nticks: 3,
        title: { text: "share", standoff: 4 },
      },
      bargap: 0,
    },
  };
}
