// Audited against claimed epsilon.

/** What audits found, against what is claimed; one picture, because both are epsilons. */
function audits(rows, page) {
  const audited = rows.filter((row) => row.audit && row.status === "complete");
  if (!audited.length) return [empty("No audited record among the runs that are shown.")];
  const claimed = audited.filter((row) => Number.isFinite(row.axis[page.state.accountant]));
  const others = audited.filter((row) => !claimed.includes(row));
  const link = (row) => {
    const name = `${nameOf(row)} (${epsilonText(row, page.state.accountant)})`;
    const text = `${name}: at least ${figures(row.audit.epsilon)}`;
    return button(text, () => page.open(row.id), { className: "link" });
  };
  const broken = claimed.filter((row) => row.audit.epsilon > row.axis[page.state.accountant]);
  return [
    make(
      "article",
      { className: "card" },
      legend(
        [...new Set(claimed.map((row) => row.method))].map((method) => ({
          look: page.looks.get(method),
          dash: "solid",
          text: method,
        })),
      ),
      claimed.length
        ? picture(
            "audited against claimed epsilon",
            "audit",
            () => auditPicture(claimed, page),
            page.open,
          )
        : null,
      make(
        "div",
        { className: "notes" },
        broken.length
          ? make("p", { className: "alarm" }, "Above its claim: ", broken.map(link))
          : null,
        others.length
          ? make("p", {}, "Audited, with no epsilon to compare: ", others.map(link))
          : null,
      ),
    ),
  ];
}

function auditPicture(rows, page) {
  const x = (row) => row.axis[page.state.accountant];
  const most = 1.1 * Math.max(...rows.flatMap((row) => [x(row), row.audit.epsilon]), 0.1);
  const traces = [...grouped(rows, (row) => row.method)].map(([method, runs]) => {
    const look = page.looks.get(method);
    return {
      type: "scatter",
      mode: "markers",
      x: runs.map(x),
      y: runs.map((r) => r.audit.epsilon),
      marker: { color: colour(look.colour), symbol: look.mark, size: 10 },
      hoverinfo: "text",
      hovertext: runs.map((r) => {
        const bounds = `claimed ${figures(x(r))}, at least ${figures(r.audit.epsilon)}`;
        return plain(`${nameOf(r)}, seed ${r.seed}: ${bounds}`);
      }),
      customdata: runs.map((r) => r.id),
    };
  });
  const diagonal = {
    type: "scatter",
    mode: "lines",
    x: [0, most],
    y: [0, most],
    line: { color: colour("ink"), width: 1.2, dash: "dash" },
    hoverinfo: "skip",
  };
  return {
    traces: [diagonal, ...traces],
    layout: {
      xaxis: {
        range: [0, most],
        title: {
          text: `claimed ε by ${page.data.accountants[page.state.accountant]}`,
          standoff: 6,
        },
      },
      yaxis: { range: [0, most], title: { text: "audited ε (lower bound)", standoff: 6 } },
    },
  };
}
