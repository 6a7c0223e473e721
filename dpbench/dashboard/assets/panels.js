// The pictures: over the budget, reliability, cost per step, audits.

const STRIP = ["ε = 0", "not computed", "no proof", "not private"];

/** Where a run stands: an epsilon, or the words that its record has instead. */
function budget(row, accountant) {
  const epsilon = row.axis[accountant];
  return epsilon === 0 ? STRIP[0] : epsilon;
}

const epsilonText = (row, accountant) => {
  const found = budget(row, accountant);
  return Number.isFinite(found) ? `ε = ${figures(found)}` : found;
};

/** One run of each seed: a run that was made again to be observed counts once. Rather one that measured what is asked. */
const ofEachSeed = (runs, value) => [...grouped(runs, (run) => run.seed).values()].map((same) => same.find((run) => value(run) != null) ?? same[0]);

/** The groups of runs that differ in nothing but the seed, and what they found. */
function groupsOf(rows, value, page) {
  return [...grouped(rows, (row) => row.group).values()].map((all) => {
    const runs = ofEachSeed(all, value);
    const found = summary(runs, value, page.data.t);
    return { runs, first: runs[0], at: budget(runs[0], page.state.accountant), ...found };
  });
}

const nameOf = (row) => (row.settings ? `${row.method} · ${row.settings}` : row.method);

/** The series of a picture with its look: colour and marker by method, dashes by settings. */
function seriesOf(groups, page) {
  const seen = new Map();
  const named = grouped(groups, (group) => group.first.series);
  return [...named.values()].map((members) => {
    const first = members[0].first;
    const before = seen.get(first.method) ?? 0;
    seen.set(first.method, before + 1);
    return { members, first, text: nameOf(first), look: page.looks.get(first.method), dash: DASHES[before % DASHES.length] };
  });
}

/** Pictures of a metric over epsilon, one for each data set and model. */
function curves(rows, metric, page) {
  const value = (row) => row.metrics[page.data.metrics.indexOf(metric)];
  const facets = [...grouped(rows, (row) => row.facet)];
  const cards = facets.flatMap(([facet, members]) => {
    const groups = groupsOf(members, value, page).filter((group) => group.measured || group.lost);
    return groups.some((group) => group.measured) ? [curve(facet, groups, metric, page)] : [];
  });
  if (!cards.length) return [empty(`No run that is shown has measured ${metric.label}.`)];
  return limited(cards, 6);
}

const empty = (text) => make("p", { className: "empty" }, text);

function curve(facet, groups, metric, page) {
  const series = seriesOf(groups, page);
  const there = groups.filter((group) => group.mean !== null);
  const label = `${metric.label} over epsilon, ${facet}; the numbers are in the table below the picture`;
  const plot = there.length ? picture(label, "curve", () => curvePicture(series, there, metric, page), page.open) : empty("Nothing to draw: every group has a run that diverged.");
  return make("article", { className: "card" }, make("h3", {}, facet), legend(series), plot, notes(groups, page), numbers(groups, metric, page));
}

/** What must be said of a picture: runs that are in no mean, epsilons of several deltas. */
function notes(groups, page) {
  const lost = groups.filter((group) => group.mean === null);
  const deltas = deltasOf(groups);
  const left = lost.map((g) => button(`${nameOf(g.first)}, ${epsilonText(g.first, page.state.accountant)} (${g.lost ? `${g.lost} of ${g.runs.length} diverged` : "not finite"})`, () => page.open(g.runs[0].id), { className: "link" }));
  return make("div", { className: "notes" },
    left.length ? make("p", {}, "In no mean: ", left.flatMap((node, i) => (i ? ["; ", node] : [node])), ". Untick “diverged” under Status to average the others.") : null,
    deltas.length > 1 ? make("p", {}, `These epsilons are for several δ (${deltas.join(", ")}) and do not compare as they stand, so no front is drawn.`) : null);
}

const deltasOf = (groups) => [...new Set(groups.filter((g) => Number.isFinite(g.at)).map((g) => String(g.first.delta)))];

/** The numbers behind a picture, made when they are asked for. */
function numbers(groups, metric, page) {
  const more = make("details", { className: "numbers" }, make("summary", {}, "Numbers and records"));
  more.addEventListener("toggle", () => {
    if (more.children.length > 1) return;
    const lines = groups.map((g) => [
      button(nameOf(g.first), () => page.open(g.runs[0].id), { className: "link" }),
      epsilonText(g.first, page.state.accountant), figures(g.first.delta ?? "–"), g.first.guarantee, withInterval(g, metric),
    ]);
    more.append(grid(["method", "epsilon", "δ", "guarantee", `${metric.label} (n)`], lines, `${metric.label}, ${groups[0].first.facet}`));
  });
  return more;
}

function curvePicture(series, there, metric, page) {
  const factor = metric.percent ? 100 : 1;
  const on = there.filter((g) => Number.isFinite(g.at));
  const words = STRIP.filter((word) => there.some((g) => g.at === word));
  const reach = ends(on.map((g) => g.at));
  const traces = [...frontTrace(on, metric, factor)];
  for (const one of series) {
    const members = one.members.filter((g) => g.mean !== null);
    const line = members.filter((g) => Number.isFinite(g.at)).sort((a, b) => a.at - b.at);
    if (line.length) traces.push(points(one, line, aside(line, series.indexOf(one), series.length, reach), "x", metric, factor, page));
    const beside = members.filter((g) => !Number.isFinite(g.at));
    if (beside.length) traces.push(points(one, beside, spread(beside, series.indexOf(one), series.length, words), "x2", metric, factor, page));
  }
  return { traces, layout: { ...budgetAxes(on.map((g) => g.at), words, page), yaxis: { title: { text: metric.percent ? `${metric.label}, %` : metric.label, standoff: 6 } }, shapes: ceilings(there, factor, on.length, page) } };
}

/** Places in the strip beside the axis: one lane for each series, so that none hides another. */
/** Epsilons, set aside by a little on the logarithmic axis, so that methods at one epsilon can be told apart. */
function aside(groups, lane, lanes, reach) {
  const step = Math.min(0.006, 0.03 / lanes) * (reach[1] - reach[0]);
  return groups.map((g) => g.at * 10 ** (step * (lane - (lanes - 1) / 2)));
}

const spread = (groups, lane, lanes, words) => groups.map((g) => words.indexOf(g.at) + (0.7 * (lane + 0.5)) / lanes - 0.35);

function points(one, groups, x, xaxis, metric, factor, page) {
  const half = groups.map((g) => (g.half === null ? null : factor * g.half));
  return {
    type: "scatter", xaxis, x, y: groups.map((g) => factor * g.mean),
    mode: xaxis === "x" && groups.length > 1 ? "lines+markers" : "markers",
    line: { color: colour(one.look.colour), width: 1.8, dash: one.dash },
    marker: { color: colour(one.look.colour), size: 10, symbol: groups.map((g) => (g.first.guarantee === "approximate" ? `${one.look.mark}-open` : one.look.mark)), line: { color: colour("card"), width: 1 } },
    error_y: { type: "data", array: half, thickness: 1.4, width: 4, color: colour(one.look.colour), visible: half.some((h) => h !== null) },
    hoverinfo: "text", hovertext: groups.map((g) => hover(g, metric, page)), customdata: groups.map((g) => g.runs[0].id),
  };
}

function hover(group, metric, page) {
  const row = group.first;
  const delta = row.delta === null ? "" : `, δ = ${figures(row.delta)}`;
  return [nameOf(row), `${epsilonText(row, page.state.accountant)}${Number.isFinite(group.at) ? delta : ""} (${row.guarantee})`, `${metric.label} ${withInterval(group, metric)}`, "select for the records"].map(plain).join("<br>");
}

/** Only what is proven competes, at one delta: an approximate epsilon would win by being less. */
function frontTrace(on, metric, factor) {
  const proven = on.filter((g) => g.first.guarantee === "proven").map((g) => ({ x: g.at, y: g.mean }));
  if (!metric.better || proven.length < 2 || deltasOf(on).length > 1) return [];
  const best = front(proven, metric.better);
  const last = { x: Math.max(...proven.map((p) => p.x)), y: best.at(-1).y };
  const path = last.x > best.at(-1).x ? [...best, last] : best;
  return [{ type: "scatter", mode: "lines", x: path.map((p) => p.x), y: path.map((p) => factor * p.y), line: { shape: "hv", color: colour("front"), width: 9 }, hoverinfo: "skip" }];
}

/** What is reached without privacy, as a line across. */
const ceilings = (there, factor, on, page) => (on ? there.filter((g) => g.at === "not private") : []).map((g) => ({
  type: "line", xref: "x domain", x0: 0, x1: 1, y0: factor * g.mean, y1: factor * g.mean, line: { color: colour(page.looks.get(g.first.method).colour), width: 1, dash: "dot" }, layer: "below",
}));

/** An axis of epsilon, and beside it a strip for what has none. */
function budgetAxes(values, words, page) {
  const split = values.length ? Math.max(0.5, 1 - 0.17 * words.length) : 0;
  const axis = { type: "log", domain: [0, words.length ? split - 0.03 : 1], range: ends(values), ...ticks(values), title: { text: `ε by ${page.data.accountants[page.state.accountant]}`, standoff: 8 } };
  const strip = { domain: [split, 1], range: [-0.5, words.length - 0.5], tickvals: words.map((_, i) => i), ticktext: words.map((word) => word.replace(" ", "<br>")), showgrid: false, showline: false, ticks: "", anchor: "y" };
  return { ...(values.length ? { xaxis: axis } : { xaxis: { visible: false, domain: [0, 0.001] } }), ...(words.length ? { xaxis2: strip } : {}) };
}

/** The ends of an axis of epsilon, as powers of ten, with room beside the values. */
function ends(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)].map(Math.log10);
  const margin = Math.max(0.12, 0.08 * (high - low));
  return [low - margin, high + margin];
}

/** Round numbers on an axis of epsilon; the epsilons themselves where fewer than two lie there. */
function ticks(values) {
  const [low, high] = ends(values);
  const factors = high - low > 3 ? [1] : [1, 2, 5];
  const round = [-4, -3, -2, -1, 0, 1, 2, 3, 4, 5].flatMap((power) => factors.map((factor) => Number(`${factor}e${power}`)));
  const inside = round.filter((value) => value >= 10 ** low && value <= 10 ** high);
  const said = [...new Set(values.map((value) => figures(value, 2)))].map(Number);
  const tickvals = inside.length > 1 ? inside : [Math.min(...said), Math.max(...said)].filter((v, i, all) => !i || v > 1.06 * all[0]);
  return { tickvals, ticktext: tickvals.map((value) => figures(value)) };
}

/** A reliability diagram for each group whose records hold one. */
function reliability(rows, page) {
  const groups = groupsOf(rows, (row) => (row.bins ? 0 : null), page).filter((group) => pooled(group.runs));
  if (!groups.length) return [empty("No run that is shown holds a reliability diagram: it has no classes, diverged, or is older than that.")];
  return limited(groups.map((group) => diagram(group, page)), 8);
}

function diagram(group, page) {
  const row = group.first;
  const bins = pooled(group.runs);
  const said = ["test/ece", "test/mce"].flatMap((name) => {
    const index = page.data.metrics.findIndex((metric) => metric.name === name);
    const found = index < 0 ? null : summary(group.runs, (run) => run.metrics[index], page.data.t);
    return found?.measured ? [`${name.slice(5).toUpperCase()} ${withInterval(found, page.data.metrics[index])}`] : [];
  });
  const title = `${nameOf(row)}, ${epsilonText(row, page.state.accountant)}`;
  return make("article", { className: "card small" },
    make("h4", {}, button(title, () => page.open(row.id), { className: "link" })),
    make("p", { className: "sub" }, row.facet),
    picture(`reliability diagram of ${title}, ${row.facet}`, "diagram", () => diagramPicture(bins, page.looks.get(row.method)), () => page.open(row.id)),
    make("p", { className: "sub" }, said.join(" · ")));
}

function diagramPicture(bins, look) {
  const total = bins.reduce((sum, [count]) => sum + count, 0);
  const full = bins.map(([count], i) => ({ count, i })).filter((bin) => bin.count);
  const centre = ({ i }) => (i + 0.5) / bins.length;
  const accuracy = ({ count, i }) => bins[i][2] / count;
  const text = full.map((bin) => `confidence ${figures(bins[bin.i][1] / bin.count)}<br>accuracy ${figures(accuracy(bin))}<br>${bin.count} examples`);
  const bar = { type: "bar", x: full.map(centre), width: 1 / bins.length, hoverinfo: "text", hovertext: text, marker: { color: colour(look.colour), line: { color: colour("card"), width: 1 } } };
  const ends = { range: [0, 1], tickvals: [0, 0.5, 1] };
  return {
    traces: [
      { ...bar, y: full.map(accuracy) },
      { type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], line: { color: colour("ink"), width: 1.2, dash: "dash" }, hoverinfo: "skip" },
      { ...bar, y: full.map((bin) => bin.count / total), yaxis: "y2", marker: { color: colour("muted") } },
    ],
    layout: { xaxis: { ...ends, title: { text: "confidence", standoff: 4 }, anchor: "y2" }, yaxis: { ...ends, domain: [0.34, 1], title: { text: "accuracy", standoff: 4 } }, yaxis2: { domain: [0, 0.24], rangemode: "tozero", nticks: 3, title: { text: "share", standoff: 4 } }, bargap: 0 },
  };
}

/** Milliseconds per step: only runs on one machine with one batch size stand in one picture. */
function costs(rows, page) {
  const timed = rows.filter((row) => Number.isFinite(row.ms) && row.ms > 0);
  if (!timed.length) return [empty("No run that is shown has its time and its steps on record.")];
  const cards = [...grouped(timed, (row) => `${row.facet} — ${row.machine}`)].map(([title, members]) => cost(title, members, page));
  return limited(cards, 6);
}

function cost(title, rows, page) {
  const varied = rows[0].how.map((_, i) => new Set(rows.map((row) => row.how[i])).size > 1);
  const said = (row, differing) => row.how.filter((_, i) => varied[i] === differing).join(", ");
  const lanes = [...grouped(rows, (row) => [row.series, ...row.how].join(" ")).values()].map((runs) => ({
    runs, text: [nameOf(runs[0]), said(runs[0], true)].filter((part) => part).join(" · "), look: page.looks.get(runs[0].method), ...summary(runs.map((r) => ({ ...r, status: "complete" })), (row) => row.ms, page.data.t),
  })).sort((a, b) => b.mean - a.mean);
  const plot = picture(`milliseconds per step, ${title}`, "cost", () => costPicture(lanes), page.open);
  plot.style.height = `${80 + 30 * lanes.length}px`;
  return make("article", { className: "card" }, make("h3", {}, title), make("p", { className: "sub" }, said(rows[0], false)), plot);
}

function costPicture(lanes) {
  const labels = lanes.map((lane) => shortened(lane.text));
  const most = 1.06 * Math.max(...lanes.flatMap((lane) => [...lane.runs.map((r) => r.ms), lane.mean + (lane.half ?? 0)]).filter(Number.isFinite));
  const text = (lane, value) => `${plain(lane.text)}<br>${figures(value)} ms a step`;
  const traces = lanes.flatMap((lane, y) => [
    { type: "scatter", mode: "markers", x: lane.runs.map((r) => r.ms), y: lane.runs.map(() => y), marker: { color: colour(lane.look.colour), opacity: 0.35, size: 7 }, hoverinfo: "text", hovertext: lane.runs.map((r) => `${text(lane, r.ms)}<br>seed ${plain(r.seed)}`), customdata: lane.runs.map((r) => r.id) },
    { type: "scatter", mode: "markers", x: [lane.mean], y: [y], marker: { color: colour(lane.look.colour), symbol: lane.look.mark, size: 11, line: { color: colour("card"), width: 1 } }, error_x: { type: "data", array: [lane.half], visible: lane.half !== null, color: colour(lane.look.colour), thickness: 1.4, width: 4 }, hoverinfo: "text", hovertext: [`${text(lane, lane.mean)}, mean of ${lane.n}`], customdata: [lane.runs[0].id] },
  ]);
  return { traces, layout: { xaxis: { title: { text: "ms per step", standoff: 6 }, range: [0, most] }, yaxis: { tickvals: lanes.map((_, i) => i), ticktext: labels.map(plain), range: [-0.6, lanes.length - 0.4], ticks: "" } } };
}

const shortened = (text) => (text.length > 34 ? `${text.slice(0, 33)}…` : text);

/** What audits found, against what is claimed; one picture, because both are epsilons. */
function audits(rows, page) {
  const audited = rows.filter((row) => row.audit && row.status === "complete");
  if (!audited.length) return [empty("No audited record among the runs that are shown.")];
  const claimed = audited.filter((row) => Number.isFinite(row.axis[page.state.accountant]));
  const others = audited.filter((row) => !claimed.includes(row));
  const link = (row) => button(`${nameOf(row)} (${epsilonText(row, page.state.accountant)}): at least ${figures(row.audit.epsilon)}`, () => page.open(row.id), { className: "link" });
  const broken = claimed.filter((row) => row.audit.epsilon > row.axis[page.state.accountant]);
  return [make("article", { className: "card" },
    legend([...new Set(claimed.map((row) => row.method))].map((method) => ({ look: page.looks.get(method), dash: "solid", text: method }))),
    claimed.length ? picture("audited against claimed epsilon", "audit", () => auditPicture(claimed, page), page.open) : null,
    make("div", { className: "notes" },
      broken.length ? make("p", { className: "alarm" }, "Above its claim: ", broken.map(link)) : null,
      others.length ? make("p", {}, "Audited, with no epsilon to compare: ", others.map(link)) : null))];
}

function auditPicture(rows, page) {
  const x = (row) => row.axis[page.state.accountant];
  const most = 1.1 * Math.max(...rows.flatMap((row) => [x(row), row.audit.epsilon]), 0.1);
  const traces = [...grouped(rows, (row) => row.method)].map(([method, runs]) => {
    const look = page.looks.get(method);
    return {
      type: "scatter", mode: "markers", x: runs.map(x), y: runs.map((r) => r.audit.epsilon), marker: { color: colour(look.colour), symbol: look.mark, size: 10 }, hoverinfo: "text",
      hovertext: runs.map((r) => plain(`${nameOf(r)}, seed ${r.seed}: claimed ${figures(x(r))}, at least ${figures(r.audit.epsilon)}`)), customdata: runs.map((r) => r.id),
    };
  });
  const diagonal = { type: "scatter", mode: "lines", x: [0, most], y: [0, most], line: { color: colour("ink"), width: 1.2, dash: "dash" }, hoverinfo: "skip" };
  return { traces: [diagonal, ...traces], layout: { xaxis: { range: [0, most], title: { text: `claimed ε by ${page.data.accountants[page.state.accountant]}`, standoff: 6 } }, yaxis: { range: [0, most], title: { text: "audited ε (lower bound)", standoff: 6 } } } };
}
