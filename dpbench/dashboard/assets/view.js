// The data of the page, and the selection.

const data = await unpacked("data");
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
  run: "",
};
const known = {
  ...options,
  metric: data.metrics.map((m) => m.name),
  calibration: byKind("calibration").map((m) => m.name),
  fairness: byKind("fairness").map((m) => m.name),
  accountant: Object.keys(data.accountants),
  theme: ["", "light", "dark"],
  run: ["", ...data.rows.map((row) => row.id)],
};
const page = {
  data,
  state: defaults,
  looks: looks(options.method),
  open: (run) => choose({ run }),
};
const at = (id) => document.getElementById(id);
