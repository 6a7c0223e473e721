// The parts of the page: what each says, and what it lets choose.

const LEVEL = `${Math.round(100 * data.level)} %`;
const INTERVAL = `bars: ${LEVEL} interval of the mean over the seeds shown`;
const OVER_BUDGET =
  `Further left is more private; ${INTERVAL}. ` +
  "Methods at one epsilon are set a little apart; what has no epsilon stands right of the axis, " +
  "under the reason. Select a point for its records.";

/** The parts of the page; `show` says whether there is anything to say, `build` says it. */
const PARTS = [
  {
    id: "utility",
    title: "Privacy and utility",
    how: () =>
      `${better(find(page.state.metric))} ${OVER_BUDGET} Wide band: Pareto front of the proven ` +
      "epsilons. Dotted line: without privacy. Open marker: approximate guarantee.",
    choices: () => [metricChoice("Metric", "metric", data.metrics), accountantChoice()],
    build: (rows) =>
      find(page.state.metric)
        ? curves(rows, find(page.state.metric), page)
        : [empty("The records hold no metric.")],
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
      "Above: how often predictions of a confidence were right; bars below the dashed line are " +
      "overconfident, above it underconfident. Below: the share of the examples. The seeds that " +
      "are shown are taken together; intervals beside ECE and MCE are over seeds.",
    build: (rows) => reliability(rows, page),
  },
  {
    id: "fairness",
    title: "Fairness gaps",
    show: () => page.state.fairness,
    how: () => `How differently groups fare: ${better(find(page.state.fairness))} ${OVER_BUDGET}`,
    choices: () => [metricChoice("Gap", "fairness", byKind("fairness"))],
    build: (rows) => curves(rows, find(page.state.fairness), page),
  },
  {
    id: "cost",
    title: "Cost per step",
    how: () =>
      "Seconds of the whole run, divided by its steps: evaluation and set-up are in it. Pale " +
      `dots are runs, the marker is their mean; ${INTERVAL}. ` +
      "Compare within a picture only: it holds one machine and one batch size.",
    build: (rows) => costs(rows, page),
  },
  {
    id: "audit",
    title: "Audited against claimed epsilon",
    how: () =>
      "An audit attacks the trained model and gives a lower bound. A point above the dashed line " +
      "refutes its claim; one below it refutes nothing.",
    build: (rows) => audits(rows, page),
  },
  {
    id: "tables",
    title: "Tables of papers",
    fixed: true,
    how: () =>
      "Ours ± spread (n), the published value in brackets, and the verdict: reproduced is within " +
      "two standard errors and the rounding over as many runs as the paper's, close within a " +
      "third of the smallest printed gap that a claim is about. Above them the paper's claims, " +
      "judged by gaps paired by seed. Filters do not apply here.",
    build: () => tableCards(data.tables),
  },
  {
    id: "runs",
    title: "Runs",
    how: () =>
      "Each record is one run; select it for all that it says and the command that makes it again.",
    build: (rows) => runList(rows, find(page.state.metric) ?? { label: "metric" }, page),
  },
  {
    id: "unreadable",
    title: "Files left out",
    fixed: true,
    show: () => data.unreadable.length,
    how: () => "These lay among the records and are in nothing above.",
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
