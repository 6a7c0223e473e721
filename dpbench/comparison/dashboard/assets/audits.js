// Audited against claimed epsilon.

/** Where the axis begins at the least: an audit that shows nothing is drawn there. */
const LEAST = 0.01;

/** Audited epsilons against claimed ones, in a single plot. */
function audits(rows) {
  const ours = rows.filter((row) => row.audit && row.status === "complete");
  const audited = [...ours, ...data.audits];
  if (!audited.length) return [empty("No audited record among the selected runs.")];
  const claimed = audited.filter((row) => Number.isFinite(row.axis[view.accountant]));
  const byMethod = grouped(claimed, (row) => row.method);
  const label = "audited against claimed epsilon";
  const notes = auditNotes(audited, claimed);
  const pages = data.cards.audits.map(documentCard);
  if (!claimed.length) return [make("article.card", notes), ...pages];
  const entries = byMethod.map(([{ method }]) => ({ method, text: data.methods[method] }));
  const said = () => [`n = ${claimed.length} audits`, `ε ${data.accountants[view.accountant]}`];
  const parts = { above: legend(entries), below: notes, said };
  const plot = card(label, label, "audit", () => auditPicture(byMethod), parts);
  return [plot, ...pages];
}

/** The claims that are refuted by an audit's verdict, and the audits of runs without an epsilon. */
function auditNotes(audited, claimed) {
  const note = (row, claim) => {
    const text = `${row.name} (${claim}): at least ${figures(row.audit.epsilon)}`;
    return row.id ? link(text, row.id) : make("span", text, "; ");
  };
  const refuted = audited
    .filter((row) => row.audit.refuted !== null)
    .map((row) => note(row, `claimed ε = ${figures(row.audit.refuted)}`));
  const without = audited
    .filter((row) => !claimed.includes(row))
    .map((row) => note(row, epsilonText(row)));
  const why = "Audited, but without an epsilon to compare with: ";
  return make(
    "div.notes",
    refuted.length ? make("p.alarm", "Claim refuted: ", refuted) : null,
    without.length ? make("p", why, without) : null,
  );
}

function auditPicture(byMethod) {
  const { accountant } = view;
  const point = (run) => ({
    x: run.axis[accountant],
    y: Math.max(run.audit.epsilon, LEAST),
    text: [
      `${run.name}, seed ${run.seed}`,
      `claimed ${run.epsilon[accountant]}, at least ${figures(run.audit.epsilon)}`,
    ],
    run: run.id,
  });
  const traces = byMethod.map((runs) => meansTrace(runs.map(point), runs[0].method));
  const range = around(
    traces.flatMap(({ x, y }) => [...x, ...y]),
    true,
  );
  const axis = { type: "log", range };
  return {
    traces: [diagonalTrace(...range.map((power) => 10 ** power)), ...traces],
    layout: {
      xaxis: titled(`claimed ε by ${data.accountants[accountant]}`, axis),
      yaxis: titled("audited ε (lower bound)", axis),
    },
  };
}
