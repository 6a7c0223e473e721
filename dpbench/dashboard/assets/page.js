// The page: its filters, and its updates when the selection changes.

const tile = (count, noun, rest = "") => [count, `${noun}${count === 1 ? "" : "s"}${rest}`];

function lead() {
  const cells = data.tables.flatMap((table) => table.cells);
  const reproduced = cells.filter((cell) => cell.verdict === "reproduced").length;
  const judged = cells.filter((cell) => cell.verdict in VERDICTS).length;
  const tiles = [
    tile(data.rows.length, "run"),
    tile(options.dataset.length, "data set"),
    tile(options.method.length, "method"),
    ...(judged ? [[`${reproduced} of ${judged}`, "published numbers reproduced"]] : []),
    ...(data.unreadable.length ? [tile(data.unreadable.length, "file", " left out")] : []),
  ];
  at("lead").append(
    ...tiles.map(([count, text]) =>
      make("span", { className: "tile" }, make("b", {}, String(count)), ` ${text}`),
    ),
  );
}

function skeleton() {
  for (const part of PARTS.filter(hasContent)) {
    const section = make(
      "section",
      { id: `part-${part.id}`, "aria-labelledby": `title-${part.id}` },
      make("h2", { id: `title-${part.id}`, tabIndex: -1 }, part.title),
      make("div", { className: "choices" }, part.choices?.() ?? []),
      make("p", { className: "how" }),
      make("div", { className: `pictures ${part.id}` }),
    );
    at("main").append(section);
    at("places").append(button(part.place ?? part.title, () => go(part.id)));
  }
}

function go(id) {
  at(`part-${id}`).scrollIntoView();
  at(`title-${id}`).focus({ preventScroll: true });
}

/** The choice between all settings of a method and the one that represents it. */
function settingsChoice() {
  const texts = { best: "Best setting per method", all: "All settings" };
  const radio = (value) =>
    make(
      "label",
      {},
      make("input", {
        type: "radio",
        name: "show",
        value,
        onchange: () => choose({ show: value }),
      }),
      make("span", {}, texts[value]),
    );
  const legend = make("legend", {}, "In pictures");
  return make("fieldset", {}, legend, make("div", { className: "values" }, known.show.map(radio)));
}

/** One fieldset of check boxes for each filter; those of swept settings are collapsed. */
function boxes() {
  const swept = make("details", {}, make("summary", {}, "Swept settings"));
  at("boxes").append(settingsChoice());
  for (const [name, label] of Object.entries(FILTERS)) {
    if (options[name].length < 2 && !FIXED_FILTERS.includes(name)) continue;
    const place = FIXED_FILTERS.includes(name) ? at("boxes") : swept;
    const box = (value) =>
      make(
        "label",
        {},
        make("input", { type: "checkbox", name, value, onchange: () => filtered(name) }),
        make("span", {}, name === "method" ? nameOfMethod(value) : value),
      );
    const all = button("all", () => choose({ [name]: null }), { "aria-label": `${label}: all` });
    const none = button("none", () => choose({ [name]: [] }), { "aria-label": `${label}: none` });
    place.append(
      make(
        "fieldset",
        {},
        make("legend", {}, label),
        make("div", { className: "ends" }, all, none),
        make("div", { className: "values" }, options[name].map(box)),
      ),
    );
  }
  if (swept.children.length > 1) at("boxes").append(swept);
}

const inputs = (name) => [...at("boxes").querySelectorAll(`input[name="${name}"]`)];

function filtered(name) {
  const ticked = inputs(name)
    .filter((input) => input.checked)
    .map((input) => input.value);
  choose({ [name]: ticked.length === options[name].length ? null : ticked });
}

/** Apply a choice by writing it into the address. */
function choose(change) {
  const hash = hashOf({ ...page.state, ...change }, defaults);
  history.replaceState(null, "", `#${hash}`);
  apply();
}

/** Update the page to the address; only the parts affected by a change are rebuilt. */
function apply() {
  const before = page.state;
  page.state = parsed(location.hash, defaults, known);
  const changed = Object.keys(defaults).filter(
    (name) =>
      String(before[name]) !== String(page.state[name]) ||
      (before[name] === null) !== (page.state[name] === null),
  );
  if (changed.includes("theme")) theme();
  controls();
  if (!applied || changed.some((name) => !["run", "with", "theme"].includes(name)))
    update(applied ? changed : null);
  applied = true;
  record();
}

let applied = false;

function controls() {
  for (const name of Object.keys(FILTERS)) {
    for (const input of inputs(name))
      input.checked = !page.state[name] || page.state[name].includes(input.value);
  }
  for (const radio of inputs("show")) radio.checked = radio.value === page.state.show;
  for (const part of PARTS.filter(hasContent)) {
    const labels = part.choices?.();
    labels?.forEach((label, i) => {
      const select = at(`part-${part.id}`).querySelectorAll("select")[i];
      select.value = label.querySelector("select").value;
    });
  }
}

const OF = {
  metric: ["utility", "runs"],
  axis: ["utility"],
  scale: ["utility", "calibration", "fairness"],
  calibration: ["calibration", "runs"],
  fairness: ["fairness", "runs"],
  board: ["board"],
  budget: ["board"],
  show: ["utility", "calibration", "reliability", "fairness", "cost"],
};

function update(changed) {
  const rows = passing(data.rows, page.state);
  at("shown").textContent = `${rows.length} of ${data.rows.length} runs shown`;
  const own = changed?.every((name) => name in OF || ["run", "with"].includes(name))
    ? changed.flatMap((name) => OF[name] ?? [])
    : null;
  for (const part of PARTS.filter(hasContent)) {
    if (own ? !own.includes(part.id) : changed && part.fixed) continue;
    const section = at(`part-${part.id}`);
    const place = section.querySelector(".pictures");
    forget(place);
    section.querySelector(".how").replaceChildren(make("b", {}, "How to read: "), part.how());
    place.replaceChildren(
      ...(rows.length || part.fixed ? part.build(rows) : [empty("No run passes the filters.")]),
    );
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

const THEMES = { "": ["◐", "as set in the system"], light: ["☀", "light"], dark: ["☾", "dark"] };

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
  for (const card of document.querySelectorAll("details.card")) {
    if (on) card.dispatchEvent(new Event("fill"));
    card.open = on;
  }
  document.documentElement.dataset.theme = on ? "light" : page.state.theme;
  drawAll();
}

function start() {
  lead();
  skeleton();
  boxes();
  at("skip").onclick = () => at("main").focus();
  at("reset").onclick = () =>
    choose(Object.fromEntries(Object.keys(FILTERS).map((name) => [name, null])));
  at("theme").onclick = () =>
    choose({ theme: { "": "light", light: "dark", dark: "" }[page.state.theme] });
  at("detail").addEventListener("close", () => {
    if (page.state.run) choose({ run: "" });
    if (opener?.isConnected) opener.focus();
  });
  at("detail").addEventListener(
    "click",
    (event) => event.target === at("detail") && at("detail").close(),
  );
  addEventListener("hashchange", apply);
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  at("filters").open = matchMedia("(min-width: 60rem)").matches;
  theme();
  apply();
}

start();
setTimeout(startPlotly, 100); // the first view is painted before
