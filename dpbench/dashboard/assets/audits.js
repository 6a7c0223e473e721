// Audited against claimed epsilon.

/** Audited epsilons against claimed ones, in a single plot. */
function audits(rows) {
  const audited = rows.filter((row) => row.audit && row.status === "complete");
  if (!audited.length) return [empty("No audited record among the selected runs.")];
  const claimed = audited.filter((row) => Number.isFinite(row.axis[view.accountant]));
  const byMethod = grouped(claimed, (row) => row.method);
  const label = "audited against claimed epsilon";
  const notes = auditNotes(audited, claimed);
  if (!claimed.length) return [make("article.card", notes)];
  const entries = byMethod.map(([{ method }]) => ({ method, text: data.methods[method] }));
  return [card(label, label, "audit", () => auditPicture(byMethod), legend(entries), notes)];
}

/** The claims that are refuted by an audit's verdict, and the audits of runs without an epsilon. */
function auditNotes(audited, claimed) {
  const note = (row, claim) =>
    link(`${row.name} (${claim}): at least ${figures(row.audit.epsilon)}`, row.id);
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
  const trace = (runs) =>
    meansTrace(
      runs.map((run) => ({
        x: run.axis[accountant],
        y: run.audit.epsilon,
        above: null,
        text: [
          `${run.name}, seed ${run.seed}`,
          `claimed ${run.epsilon[accountant]}, at least ${figures(run.audit.epsilon)}`,
        ],
        run: run.id,
      })),
      data.looks[runs[0].method],
    );
  const ends = byMethod.flat().flatMap((row) => [row.axis[accountant], row.audit.epsilon]);
  const most = 1.1 * Math.max(...ends, 0.1);
  const range = [0, most];
  return {
    traces: [diagonalTrace(most), ...byMethod.map(trace)],
    layout: {
      xaxis: titled(`claimed ε by ${data.accountants[accountant]}`, { range }),
      yaxis: titled("audited ε (lower bound)", { range }),
    },
  };
}
