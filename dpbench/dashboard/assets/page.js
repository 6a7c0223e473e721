// The page: its parts, its filters, and drawing both anew when something is chosen.

const data = await unpacked("data");
const options = offered(data.rows);
const byKind = (kind) => data.metrics.filter((metric) => metric.kind === kind);
const find = (name) => data.metrics.find((metric) => metric.name === name);
const first = (kind) => byKind(kind)[0]?.name ?? "";

const defaults = {
  ...Object.fromEntries(Object.keys(FILTERS).map((name) => [name, null])),
  metric: first("utility") || data.metrics[0]?.name || "", calibration: first("calibration"), fairness: first("fairness"), accountant: Object.keys(data.accountants)[0], theme: "", run: "",
};
const known = {
  ...options, metric: data.metrics.map((m) => m.name), calibration: byKind("calibration").map((m) => m.name), fairness: byKind("fairness").map((m) => m.name),
  accountant: Object.keys(data.accountants), theme: ["", "light", "dark"], run: ["", ...data.rows.map((row) => row.id)],
};
const page = { data, state: defaults, looks: looks(options.method), open: (run) => choose({ run }) };
const at = (id) => document.getElementById(id);

const INTERVAL = `bars: ${Math.round(100 * data.level)} % interval of the mean over the seeds shown`;
const OVER_BUDGET = `Further left is more private; ${INTERVAL}. Methods at one epsilon are set a little apart; what has no epsilon stands right of the axis, under the reason. Select a point for its records.`;

/** The parts of the page; `show` says whether there is anything to say, `build` says it. */
const PARTS = [
  {
    id: "utility", title: "Privacy and utility",
    how: () => `${better(find(page.state.metric))} ${OVER_BUDGET} Wide band: Pareto front of the proven epsilons. Dotted line: without privacy. Open marker: approximate guarantee.`,
    choices: () => [metricChoice("Metric", "metric", data.metrics), accountantChoice()],
    build: (rows) => (find(page.state.metric) ? curves(rows, find(page.state.metric), page) : [empty("The records hold no metric.")]),
  },
  {
    id: "calibration", title: "Calibration", show: () => page.state.calibration,
    how: () => `ECE and MCE are the mean and the largest gap between confidence and accuracy over bins of confidence. ${better(find(page.state.calibration))} ${OVER_BUDGET}`,
    choices: () => [metricChoice("Measure", "calibration", byKind("calibration"))],
    build: (rows) => curves(rows, find(page.state.calibration), page),
  },
  {
    id: "reliability", title: "Reliability diagrams",
    how: () => "Above: how often predictions of a confidence were right; bars below the dashed line are overconfident, above it underconfident. Below: the share of the examples. The seeds that are shown are taken together; intervals beside ECE and MCE are over seeds.",
    build: (rows) => reliability(rows, page),
  },
  {
    id: "fairness", title: "Fairness gaps", show: () => page.state.fairness,
    how: () => `How differently groups fare: ${better(find(page.state.fairness))} ${OVER_BUDGET}`,
    choices: () => [metricChoice("Gap", "fairness", byKind("fairness"))],
    build: (rows) => curves(rows, find(page.state.fairness), page),
  },
  {
    id: "cost", title: "Cost per step",
    how: () => `Seconds of the whole run, divided by its steps: evaluation and set-up are in it. Pale dots are runs, the marker is their mean; ${INTERVAL}. Compare within a picture only: it holds one machine and one batch size.`,
    build: (rows) => costs(rows, page),
  },
  {
    id: "audit", title: "Audited against claimed epsilon",
    how: () => "An audit attacks the trained model and gives a lower bound. A point above the dashed line refutes its claim; one below it refutes nothing.",
    build: (rows) => audits(rows, page),
  },
  {
    id: "tables", title: "Tables of papers", fixed: true,
    how: () => "Ours ± spread (n), the published value in brackets, and the verdict: reproduced is within two standard errors and the rounding over as many runs as the paper's, close within a third of the smallest printed gap that a claim is about. Above them the paper's claims, judged by gaps paired by seed. Filters do not apply here.",
    build: () => tableCards(data.tables, page),
  },
  { id: "runs", title: "Runs", how: () => "Each record is one run; select it for all that it says and the command that makes it again.", build: (rows) => runList(rows, find(page.state.metric) ?? { label: "metric" }, page) },
  { id: "unreadable", title: "Files left out", fixed: true, show: () => data.unreadable.length, how: () => "These lay among the records and are in nothing above.", build: () => unreadable(data.unreadable) },
];

const better = (metric) => ({ higher: "Higher is better.", lower: "Lower is better." })[metric?.better] ?? "";
const shows = (part) => !part.show || part.show();

function metricChoice(label, name, metrics) {
  const text = (m) => (m.group ? `${m.label}: ${m.group}` : m.label);
  return choice(label, metrics.map((m) => [m.name, text(m)]), page.state[name], (value) => choose({ [name]: value }));
}

const accountantChoice = () => choice("Epsilon by", Object.entries(data.accountants), page.state.accountant, (value) => choose({ accountant: value }));

function lead() {
  const cells = data.tables.flatMap((table) => table.cells);
  const reproduced = cells.filter((cell) => cell.verdict === "reproduced").length;
  const judged = cells.filter((cell) => cell.verdict in VERDICTS).length;
  const tiles = [
    [data.rows.length, "runs"], [options.dataset.length, "data sets"], [options.method.length, "methods"],
    ...(judged ? [[`${reproduced} of ${judged}`, "published numbers reproduced"]] : []),
    ...(data.unreadable.length ? [[data.unreadable.length, "files left out"]] : []),
  ];
  at("lead").append(...tiles.map(([count, text]) => make("span", { className: "tile" }, make("b", {}, String(count)), ` ${text}`)));
}

function skeleton() {
  for (const part of PARTS.filter(shows)) {
    const section = make("section", { id: `part-${part.id}`, "aria-labelledby": `title-${part.id}` },
      make("h2", { id: `title-${part.id}`, tabIndex: -1 }, part.title), make("div", { className: "choices" }, part.choices?.() ?? []),
      make("p", { className: "how" }), make("div", { className: `pictures ${part.id}` }));
    at("main").append(section);
    at("places").append(button(part.title, () => go(part.id)));
  }
}

function go(id) {
  at(`part-${id}`).scrollIntoView();
  at(`title-${id}`).focus({ preventScroll: true });
}

/** One fieldset of check boxes for each filter. */
function boxes() {
  for (const [name, label] of Object.entries(FILTERS)) {
    const box = (value) => make("label", {}, make("input", { type: "checkbox", name, value, onchange: () => filtered(name) }), make("span", {}, value));
    const all = button("all", () => choose({ [name]: null }), { "aria-label": `${label}: all` });
    const none = button("none", () => choose({ [name]: [] }), { "aria-label": `${label}: none` });
    at("boxes").append(make("fieldset", {}, make("legend", {}, label), make("div", { className: "ends" }, all, none), make("div", { className: "values" }, options[name].map(box))));
  }
}

const inputs = (name) => [...at("boxes").querySelectorAll(`input[name="${name}"]`)];

function filtered(name) {
  const ticked = inputs(name).filter((input) => input.checked).map((input) => input.value);
  choose({ [name]: ticked.length === options[name].length ? null : ticked });
}

/** Take over a choice, and put it into the address. */
function choose(change) {
  const hash = hashOf({ ...page.state, ...change }, defaults);
  history.replaceState(null, "", `#${hash}`);
  apply();
}

/** Bring the page to what the address says; only what a change touches is made anew. */
function apply() {
  const before = page.state;
  page.state = parsed(location.hash, defaults, known);
  const changed = Object.keys(defaults).filter((name) => String(before[name]) !== String(page.state[name]) || (before[name] === null) !== (page.state[name] === null));
  if (changed.includes("theme")) theme();
  controls();
  if (!applied || changed.some((name) => !["run", "theme"].includes(name))) update(applied ? changed : null);
  applied = true;
  record();
}

let applied = false;

function controls() {
  for (const name of Object.keys(FILTERS)) {
    for (const input of inputs(name)) input.checked = !page.state[name] || page.state[name].includes(input.value);
  }
  for (const part of PARTS.filter(shows)) {
    const labels = part.choices?.();
    labels?.forEach((label, i) => (at(`part-${part.id}`).querySelectorAll("select")[i].value = label.querySelector("select").value));
  }
}

const OF = { metric: ["utility", "runs"], calibration: ["calibration"], fairness: ["fairness"] };

function update(changed) {
  const rows = passing(data.rows, page.state);
  at("shown").textContent = `${rows.length} of ${data.rows.length} runs shown`;
  const own = changed?.every((name) => name in OF || name === "run") ? changed.flatMap((name) => OF[name] ?? []) : null;
  for (const part of PARTS.filter(shows)) {
    if (own ? !own.includes(part.id) : changed && part.fixed) continue;
    const section = at(`part-${part.id}`);
    const place = section.querySelector(".pictures");
    forget(place);
    section.querySelector(".how").replaceChildren(make("b", {}, "How to read: "), part.how());
    place.replaceChildren(...(rows.length || part.fixed ? part.build(rows) : [empty("No run passes the filters.")]));
  }
}

let opener = null;

function record() {
  const dialog = at("detail");
  const row = data.rows.find((r) => r.id === page.state.run);
  if (!row) return dialog.open && dialog.close();
  dialog.replaceChildren(...detail(row, page));
  if (!dialog.open) {
    opener = document.activeElement;
    dialog.showModal();
  }
  dialog.scrollTop = 0;
  dialog.querySelector(".close").focus();
}

const THEMES = { "": ["◐", "as the system has them"], light: ["☀", "light"], dark: ["☾", "dark"] };

function theme() {
  document.documentElement.dataset.theme = page.state.theme;
  const [sign, words] = THEMES[page.state.theme];
  at("theme").textContent = sign;
  at("theme").setAttribute("aria-label", `Colours: ${words}`);
  at("theme").title = `Colours: ${words}`;
  redraw();
}

/** Paper is white and narrower than most screens. */
function printing(on) {
  document.documentElement.classList.toggle("paper", on);
  document.documentElement.dataset.theme = on ? "light" : page.state.theme;
  drawAll();
}

function start() {
  lead();
  skeleton();
  boxes();
  at("skip").onclick = () => at("main").focus();
  at("reset").onclick = () => choose(Object.fromEntries(Object.keys(FILTERS).map((name) => [name, null])));
  at("theme").onclick = () => choose({ theme: { "": "light", light: "dark", dark: "" }[page.state.theme] });
  at("detail").addEventListener("close", () => {
    if (page.state.run) choose({ run: "" });
    if (opener?.isConnected) opener.focus();
  });
  at("detail").addEventListener("click", (event) => event.target === at("detail") && at("detail").close());
  addEventListener("hashchange", apply);
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  at("filters").open = matchMedia("(min-width: 60rem)").matches;
  theme();
  apply();
}

start();
