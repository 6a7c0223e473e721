// The page: its controls, and its updates when the view changes.

const data = await packed("data");
const swept = data.filters.filter((filter) => filter.swept);
for (const row of data.rows)
  for (const { name } of swept) row[name] ??= data.settings[row.group][name] ?? "–";

const values = (options) => options.map(([value]) => value);
const runIds = data.rows.map((row) => row.id);
const offered = {
  filters: Object.fromEntries(data.filters.map(({ name, options }) => [name, values(options)])),
  choices: {
    ...Object.fromEntries(Object.entries(data.choices).map(([name, all]) => [name, values(all)])),
    run: ["", COMPARED, ...runIds],
  },
  lists: { chosen: runIds },
};
let view = {};

/** The parts of the page, whose texts and controls are in page.html. */
const PARTS = {
  live: () => data.live.map(sweepCard),
  board: boardPart,
  utility: (rows) => {
    if (!view.metric) return [empty("The records contain no metrics.")];
    const metric = metricOf(view.metric);
    if (view.axis === "epsilon") return curves(rows.filter(isShown), metric);
    return view.axis === "seconds" ? overSeconds(rows, metric) : sweeps(rows, metric, view.axis);
  },
  audit: audits,
  tables: () => studies(data.cards.studies),
  searches: () => data.cards.searches.map(documentCard),
  checks: () => data.cards.checks.map(documentCard),
  runs: runList,
  unreadable: () => [make("ul.files", data.unreadable.map(fileLeftOut))],
};
/** What a part of the page is left out without. */
const NEEDED = {
  ...data.choices,
  ...data.cards,
  live: data.live ?? [],
  board: data.boards,
  unreadable: data.unreadable,
};

/** Whether the pictures show a run: all settings, or the one curve of its method. */
const isShown = (row) => view.show === "all" || row.best;

const fileLeftOut = ([source, why]) => make("li", make("code", source), ` ${why}`);

/** A sweep: how far it is, what runs, and the text of its failures. */
function sweepCard({ name, done, total, running, failed }) {
  const missing = total - done - running.length;
  const said = `${done} of ${total} runs finished, ${running.length} running, ${missing} missing`;
  const step = ([digest, at, last]) => make("li", make("code", digest), ` step ${at} of ${last}`);
  return make(
    "article.card",
    make("h3", name),
    make("progress", { value: done, max: total || 1, "aria-label": said }),
    make("p", said),
    make("ul.files", running.map(step)),
    failed ? folded("details.alarm", "What failed", () => [make("pre", failed)]) : "",
  );
}

/** Ask for the page again, which is made anew if files have changed; not while it is in use. */
function renew() {
  const inUse = at("detail").open || document.hidden || at("find").value;
  if (!inUse) location.reload();
}

const sections = () => [...document.querySelectorAll("main > section")];

/** What depends on the data: counts, places, filters and choices. */
function skeleton() {
  const tile = ([count, rest]) => make("span.tile", make("b", count), ` ${rest}`);
  at("lead").append(...data.lead.map(tile));
  for (const section of sections()) {
    const heading = section.querySelector("h2");
    if (NEEDED[section.id.slice(5)]?.length === 0) {
      section.remove();
      continue;
    }
    const go = () => {
      section.scrollIntoView();
      heading.focus({ preventScroll: true });
    };
    at("places").append(button(section.dataset.place ?? heading.textContent, go));
  }
  for (const select of document.querySelectorAll("select"))
    select.append(...data.choices[select.name].map(([value, text]) => new Option(text, value)));
  for (const filter of data.filters.filter(({ swept }) => !swept)) at("boxes").append(box(filter));
  if (swept.length)
    at("boxes").append(make("details", make("summary", "Swept settings"), swept.map(box)));
}

/** The check boxes of a filter. */
function box({ name, label, options }) {
  const end = (text, chosen) =>
    button(text, () => choose({ [name]: chosen }), { "aria-label": `${label}: ${text}` });
  const option = ([value, text]) =>
    make("label", make("input", { type: "checkbox", name, value }), make("span", text));
  return make(
    "fieldset",
    make("legend", label),
    make("div.ends", end("all", null), end("none", [])),
    make("div.values", options.map(option)),
  );
}

/** Apply a change by writing it into the address. */
function choose(change) {
  const address = addressOf({ ...view, ...change }, offered);
  history.replaceState(null, "", `#${address}`);
  apply();
}

/** The change that a control asks for. */
function changed({ target: { name, type, value } }) {
  if (!name) return;
  if (type !== "checkbox")
    return choose({ [name]: value, ...(name === "board" && { budget: "" }) });
  const boxes = [...document.querySelectorAll("input:checked")];
  const ticked = boxes.filter((one) => one.name === name).map((one) => one.value);
  choose({ [name]: ticked.length === offered.filters[name].length ? null : ticked });
}

/** Update the page to the address; only the parts that depend on a change are rebuilt. */
function apply() {
  const before = view;
  view = viewOf(location.hash, offered);
  const names = Object.keys(view).filter((name) => String(before[name]) !== String(view[name]));
  document.documentElement.dataset.theme = view.theme;
  if (names.includes("theme")) redraw();
  controls();
  const filtered = names.some((name) => name in offered.filters);
  const rows = passing(data.rows, view, offered.filters);
  for (const section of sections()) {
    const uses = section.dataset.uses?.split(" ") ?? [];
    const depends = (filtered && uses.length) || uses.some((name) => names.includes(name));
    if (!("run" in before) || depends) rebuild(section, rows);
  }
  at("shown").textContent = `${rows.length} of ${data.rows.length} runs shown`;
  chosenBar();
  record();
}

function rebuild(section, rows) {
  const place = section.querySelector(".pictures");
  forget(place);
  const none = section.dataset.uses && !rows.length;
  const built = none ? [empty("No run passes the filters.")] : PARTS[section.id.slice(5)](rows);
  place.replaceChildren(...built);
}

function controls() {
  for (const control of document.querySelectorAll("input[name], select[name]")) {
    const { name, type, value } = control;
    if (type === "checkbox") control.checked = !view[name] || view[name].includes(value);
    else if (type === "radio") control.checked = view[name] === value;
    else if (view[name]) control.value = view[name];
  }
}

function record() {
  const dialog = at("detail");
  const rows = view.run === COMPARED ? chosenRows() : data.rows.filter(({ id }) => id === view.run);
  if (!rows.length) return dialog.open && dialog.close();
  forget(dialog);
  dialog.replaceChildren(...(view.run === COMPARED ? comparison(rows) : detail(rows[0])));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  dialog.querySelector(".close").focus();
}

/** Paper is white and narrower than most screens; what is folded stays so. */
function printing(on) {
  document.documentElement.classList.toggle("paper", on);
  document.documentElement.dataset.theme = on ? "light" : view.theme;
  redraw(".picture");
}

function start() {
  skeleton();
  const unfiltered = Object.fromEntries(data.filters.map(({ name }) => [name, null]));
  at("skip").onclick = () => at("main").focus();
  at("find").oninput = ({ target }) => find(target.value);
  at("hits").onclick = () => at("part-runs").scrollIntoView();
  at("reset").onclick = () => choose(unfiltered);
  at("detail").addEventListener("close", () => view.run && choose({ run: "" }));
  at("detail").addEventListener("click", ({ target }) => target === at("detail") && target.close());
  document.addEventListener("change", changed);
  addEventListener("hashchange", apply);
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
  for (const id of ["filters", "contained"]) at(id).open = matchMedia("(min-width: 60rem)").matches;
  apply();
}

start();
if (data.watch) setInterval(renew, 15_000);
setTimeout(startPlotly, 100); // the first view is painted before
