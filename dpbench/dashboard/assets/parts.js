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
    id: "utility",
    title: "Privacy and utility",
    how: () =>
      `${better(find(page.state.metric))} ${OVER_BUDGET} Wide band: Pareto front of runs with a ` +
      "proven epsilon. Dotted line: without privacy. Open marker: approximate guarantee.",
    choices: () => [metricChoice("Metric", "metric", data.metrics), accountantChoice()],
    build: (rows) =>
      find(page.state.metric)
        ? curves(rows, find(page.state.metric), page)
        : [empty("The records contain no metrics.")],
  },
  {
    id: "calibration",
    title: "Calibration",
    show: () => page.state.calibration,
    how: () =>
      "ECE and MCE are the mean and the largest gap between confidence and accuracy over bins of " +
      `confidence. ${better(find(page.state.calibration))} ${OVER_BUDGET}`,
    choices: () => [metricChoice("Measure", "calibration", byKind("calibration"))],
    build: (rows) => curves(rows, find(page.state.calibration), page),
  },
  {
    id: "reliability",
    title: "Reliability diagrams",
    how: () =>
      "Top: accuracy of the predictions in each bin of confidence; bars below the dashed line " +
      "are overconfident, bars above it underconfident. Bottom: the share of examples in each " +
      "bin. Examples of all selected seeds are pooled; intervals of ECE and MCE are over seeds.",
    build: (rows) => reliability(rows, page),
  },
  {
    id: "fairness",
    title: "Fairness gaps",
    show: () => page.state.fairness,
    how: () => `Differences between groups. ${better(find(page.state.fairness))} ${OVER_BUDGET}`,
    choices: () => [metricChoice("Gap", "fairness", byKind("fairness"))],
    build: (rows) => curves(rows, find(page.state.fairness), page),
  },
  {
    id: "cost",
    title: "Cost per step",
    how: () =>
      "Duration of the whole run divided by its steps, including evaluation and set-up. Pale " +
      `dots are runs, the marker is their mean; ${INTERVAL}. ` +
      "Compare only within a plot: each is for one machine and one batch size.",
    build: (rows) => costs(rows, page),
  },
  {
    id: "audit",
    title: "Audited against claimed epsilon",
    how: () =>
      "An audit attacks the trained model and yields a lower bound on epsilon. A point above the " +
      "dashed line refutes the claimed epsilon; a point below it is consistent with the claim.",
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
      "Each record is one run; select it to see all of it and the command that reproduces it.",
    build: (rows) => runList(rows, find(page.state.metric) ?? { label: "metric" }, page),
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
