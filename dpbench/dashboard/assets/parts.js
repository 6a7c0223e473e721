// The parts of the page: their texts, their controls and their contents.

const LEVEL = `${Math.round(100 * data.level)} %`;
const INTERVAL = `error bars: ${LEVEL} confidence interval of the mean over the selected seeds`;
const OVER_BUDGET =
  `Further left is more private; ${INTERVAL}. ` +
  "Methods at the same epsilon are drawn slightly apart; runs without an epsilon are to the " +
  "right of the axis, above the reason. Select a point to see its records.";

/** The parts of the page; `show` says whether there is anything to show, `build` creates it. */
const PARTS = [
  {
    id: "board",
    title: "Methods compared",
    show: () => data.boards.length,
    how: () =>
      "One row per method, by mean. " +
      `Each mean has its ${LEVEL} interval over seeds (of one run: over its test examples). ` +
      "A method is behind if the interval of its difference to the first, paired by seed, " +
      "excludes 0; each comparison is at that level, without a correction for their number. The " +
      "sentence and the words better, worse, equivalent and undecided compare with the baseline, " +
      "corrected for their number; the picture shows these differences. " +
      "All seeds count, whatever the filter. Methods without an epsilon have no rank.",
    build: (rows) => boardView(rows),
  },
  {
    id: "utility",
    title: "Privacy and utility",
    how: () =>
      page.state.axis === EPSILON
        ? `${better(find(page.state.metric))} ${OVER_BUDGET} Wide band: Pareto front of runs ` +
          "with a proven epsilon. Dotted line: without privacy. Open marker: a guarantee that is " +
          "approximate, or claimed by the author of a plug-in."
        : `${better(find(page.state.metric))} For each method and budget that sweeps over ` +
          `${page.state.axis}: the best mean over its other settings; ${INTERVAL}.`,
    choices: () => [
      metricChoice("Metric", "metric", data.metrics),
      accountantChoice(),
      axisChoice(),
      scaleChoice(),
    ],
    build: (rows) => {
      const metric = find(page.state.metric);
      if (!metric) return [empty("The records contain no metrics.")];
      return page.state.axis === EPSILON
        ? curves(rows.filter(isShown), metric, page)
        : sweepCards(rows, metric, page.state.axis);
    },
  },
  {
    id: "calibration",
    title: "Calibration",
    show: () => page.state.calibration,
    how: () =>
      "ECE and MCE are the mean and the largest gap between confidence and accuracy over bins of " +
      `confidence. ${better(find(page.state.calibration))} ${OVER_BUDGET}`,
    choices: () => [metricChoice("Measure", "calibration", byKind("calibration")), scaleChoice()],
    build: (rows) => curves(rows.filter(isShown), find(page.state.calibration), page),
  },
  {
    id: "reliability",
    title: "Reliability diagrams",
    how: () =>
      "Top: accuracy of the predictions in each bin of confidence; bars below the dashed line " +
      "are overconfident, bars above it underconfident. Bottom: the share of examples in each " +
      "bin. Examples of all selected seeds are pooled; intervals of ECE and MCE are over seeds.",
    build: (rows) => reliability(rows.filter(isShown), page),
  },
  {
    id: "fairness",
    title: "Fairness gaps",
    show: () => page.state.fairness,
    how: () => `Differences between groups. ${better(find(page.state.fairness))} ${OVER_BUDGET}`,
    choices: () => [metricChoice("Gap", "fairness", byKind("fairness")), scaleChoice()],
    build: (rows) => curves(rows.filter(isShown), find(page.state.fairness), page),
  },
  {
    id: "cost",
    title: "Cost per step",
    how: () =>
      "Duration of the whole run divided by its steps, including evaluation and set-up. Pale " +
      `dots are runs, the marker is their mean; ${INTERVAL}. ` +
      "Compare only within a plot: each is for one machine and one batch size.",
    build: (rows) => costs(rows.filter(isShown), page),
  },
  {
    id: "audit",
    title: "Audited against claimed epsilon",
    place: "Audits",
    how: () =>
      "An audit runs the method on canaries and yields a lower bound on epsilon, at 95% " +
      "confidence, so one in twenty may lie above the dashed line though the claim is true. It " +
      "is refuted where the scores have a probability of at most 1e-4 under it; a point below " +
      "the line proves nothing.",
    build: (rows) => audits(rows, page),
  },
  {
    id: "tables",
    title: "Tables of papers",
    fixed: true,
    how: () =>
      "Our value ± spread (n), the published value in brackets, and the verdict. Reproduced: " +
      "within two standard errors and rounding, with at least as many runs as the paper. Close: " +
      "within a third of the smallest printed gap that a claim is about. Above the numbers are " +
      "the paper's claims, judged by differences paired by seed. Filters do not apply here.",
    build: () => tableCards(data.tables),
  },
  {
    id: "runs",
    title: "Runs",
    how: () =>
      "Each record is one run; select it to see all of it and the command that reproduces it. " +
      "A heading sorts; CSV and LaTeX contain all rows that the search finds.",
    build: (rows) => runList(rows, runMetrics()),
  },
  {
    id: "unreadable",
    title: "Files left out",
    fixed: true,
    show: () => data.unreadable.length,
    how: () => "These files in the results folder could not be used and are not in anything above.",
    build: () => unreadable(data.unreadable),
  },
];

/** Whether the pictures show a run: all settings, or the one that represents its method. */
const isShown = (row) => page.state.show === "all" || row.best;

/** The metrics of the table of runs: those that the parts of the page show. */
const runMetrics = () =>
  [...new Set(["metric", "fairness", "calibration"].map((name) => page.state[name]))]
    .map(find)
    .filter((metric) => metric);

const axisChoice = () =>
  choice(
    "Over",
    known.axis.map((name) => [name, name === EPSILON ? "ε" : name]),
    page.state.axis,
    (value) => choose({ axis: value }),
  );

const better = (metric) =>
  ({ higher: "Higher is better.", lower: "Lower is better." })[metric?.better] ?? "";
const hasContent = (part) => !part.show || part.show();

function metricChoice(label, name, metrics) {
  const text = (m) => (m.group ? `${m.label}: ${m.group}` : m.label);
  return choice(
    label,
    metrics.map((m) => [m.name, text(m)]),
    page.state[name],
    (value) => choose({ [name]: value }),
  );
}

const accountantChoice = () =>
  choice("Epsilon by", Object.entries(data.accountants), page.state.accountant, (value) =>
    choose({ accountant: value }),
  );
