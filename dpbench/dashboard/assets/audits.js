// Audited against claimed epsilon.

/** Audited epsilons against claimed ones, in a single plot. */
function audits(rows, page) {
  const audited = rows.filter((row) => row.audit && row.status === "complete");
  if (!audited.length) return [empty("No audited record among the selected runs.")];
  const claimed = audited.filter((row) => Number.isFinite(row.axis[page.state.accountant]));
  const others = audited.filter((row) => !claimed.includes(row));
  const label = "audited against claimed epsilon";
  const plot = claimed.length
    ? picture(label, "audit", () => auditPicture(claimed, page), page.open)
    : null;
  return [
    make(
      "article",
      { className: "card" },
      auditLegend(claimed, page),
      plot,
      plot && pictureExports(plot, label),
      auditNotes(audited, others, page),
    ),
  ];
}

const auditLegend = (rows, page) =>
  legend(
    [...new Set(rows.map((row) => row.method))].map((method) => ({
      look: page.looks.get(method),
      dash: "solid",
      text: nameOfMethod(method),
    })),
  );

/** The claims that are refuted by an audit's verdict, and the audits of runs without an epsilon. */
function auditNotes(audited, others, page) {
  const link = (row, claim) => {
    const text = `${nameOf(row)} (${claim}): at least ${figures(row.audit.epsilon)}`;
    return button(text, () => page.open(row.id), { className: "link" });
  };
  const refuted = audited
    .filter((row) => row.audit.refuted !== null)
    .map((row) => link(row, `claimed ε = ${figures(row.audit.refuted)}`));
  const without = others.map((row) => link(row, epsilonText(row, page.state.accountant)));
  return make(
    "div",
    { className: "notes" },
    refuted.length ? make("p", { className: "alarm" }, "Claim refuted: ", refuted) : null,
    without.length
      ? make("p", {}, "Audited, but without an epsilon to compare with: ", without)
      : null,
  );
}

function auditPicture(rows, page) {
  const { accountant } = page.state;
  const most =
    1.1 * Math.max(...rows.flatMap((row) => [row.axis[accountant], row.audit.epsilon]), 0.1);
  const claimed = { text: `claimed ε by ${page.data.accountants[accountant]}`, standoff: 6 };
  return {
    traces: [
      diagonalTrace(most),
      ...[...grouped(rows, (row) => row.method).values()].map((runs) => auditTrace(runs, page)),
    ],
    layout: {
      xaxis: { range: [0, most], title: claimed },
      yaxis: { range: [0, most], title: { text: "audited ε (lower bound)", standoff: 6 } },
    },
  };
}

/** The audits of one method. */
function auditTrace(runs, page) {
  const look = page.looks.get(runs[0].method);
  const claim = (run) => run.axis[page.state.accountant];
  return {
    type: "scatter",
    mode: "markers",
    x: runs.map(claim),
    y: runs.map((run) => run.audit.epsilon),
    marker: { color: colour(look.colour), symbol: look.mark, size: 10 },
    hoverinfo: "text",
    hovertext: runs.map((run) => {
      const bounds = `claimed ${atMost(claim(run))}, at least ${figures(run.audit.epsilon)}`;
      return plain(`${nameOf(run)}, seed ${run.seed}: ${bounds}`);
    }),
    customdata: runs.map((run) => run.id),
  };
}
