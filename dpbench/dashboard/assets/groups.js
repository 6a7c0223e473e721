// Groups of runs that differ only in the seed, and their names.

const STRIP = [
  "ε = 0",
  "not computed",
  "no proof",
  "see its search",
  "too little noise",
  "not private",
];

/** The guarantee of a plug-in's method: its author's claim, which dpbench has not checked. */
const CLAIMED = "claimed";

/** The position of a run: an epsilon, or the reason that its record gives instead. */
function budget(row, accountant) {
  const epsilon = row.axis[accountant];
  return epsilon === 0 ? STRIP[0] : epsilon;
}

const epsilonText = (row, accountant) => {
  const found = budget(row, accountant);
  if (!Number.isFinite(found)) return found;
  return `ε = ${atMost(found)}${row.guarantee === CLAIMED ? ` (${CLAIMED})` : ""}`;
};

/**
 * One run per seed: a run that was repeated with diagnostics counts once.
 * If there are several, one that measured the value.
 */
const ofEachSeed = (runs, value) =>
  [...grouped(runs, (run) => run.seed).values()].map(
    (same) => same.find((run) => value(run) != null) ?? same[0],
  );

/** The groups of runs that differ only in the seed, with their means. */
function groupsOf(rows, value, page) {
  return [...grouped(rows, (row) => row.group).values()].map((all) => {
    const runs = ofEachSeed(all, value);
    const found = summary(runs, value, page.data.t);
    return { runs, first: runs[0], at: budget(runs[0], page.state.accountant), ...found };
  });
}

const nameOfMethod = (method) => data.methods[method] ?? method;

/** The name of a run's method, with the settings that others of its name do not have. */
const nameOf = (row) =>
  row.settings ? `${nameOfMethod(row.method)} · ${row.settings}` : nameOfMethod(row.method);

/** The series of a plot: colour and marker by method, dashes by settings. */
function seriesOf(groups, page) {
  const counts = new Map();
  return [...grouped(groups, ({ first }) => first.series).values()].map((members) => {
    const first = members[0].first;
    const before = counts.get(first.method) ?? 0;
    counts.set(first.method, before + 1);
    return {
      members,
      first,
      text: nameOf(first),
      look: page.looks.get(first.method),
      dash: DASHES[before % DASHES.length],
    };
  });
}
