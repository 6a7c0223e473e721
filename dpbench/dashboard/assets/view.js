// The data of the page, and the selection.

const data = prepared(await unpacked("data"));
for (const { name } of data.swept) FILTERS[name] ??= name;
const EPSILON = "epsilon";
const options = offered(data.rows);
const byKind = (kind) => data.metrics.filter((metric) => metric.kind === kind);
const find = (name) => data.metrics.find((metric) => metric.name === name);
const first = (kind) => byKind(kind)[0]?.name ?? "";

const defaults = {
  ...Object.fromEntries(Object.keys(FILTERS).map((name) => [name, null])),
  metric: first("utility") || data.metrics[0]?.name || "",
  calibration: first("calibration"),
  fairness: first("fairness"),
  accountant: Object.keys(data.accountants)[0],
  theme: "",
  board: "",
  budget: "",
  show: "best",
  axis: EPSILON,
  scale: "dataset",
  with: "",
  run: "",
};
const known = {
  ...options,
  metric: data.metrics.map((m) => m.name),
  calibration: byKind("calibration").map((m) => m.name),
  fairness: byKind("fairness").map((m) => m.name),
  accountant: Object.keys(data.accountants),
  theme: ["", "light", "dark"],
  board: ["", ...data.boards.map((board) => board.facet)],
  budget: ["", ...data.boards.map(keyOf)],
  show: ["best", "all"],
  axis: [EPSILON, ...data.swept.filter((one) => one.numeric).map((one) => one.name)],
  scale: Object.keys(SCALES),
  with: ["", ...data.rows.map((row) => row.id)],
  run: ["", ...data.rows.map((row) => row.id)],
};
const page = {
  data,
  state: defaults,
  looks: looks(options.method),
  open: (run) => choose({ run }),
};
const at = (id) => document.getElementById(id);

/**
 * The unpacked data, with NaN for metrics that are not finite and, in each row, the swept settings
 * by name.
 */
function prepared(packed) {
  for (const row of packed.rows) {
    for (const place of row.not_finite) row.metrics[place] = Number.NaN;
    for (const { name } of packed.swept) row[name] ??= packed.settings[row.group][name] ?? "–";
  }
  return packed;
}
