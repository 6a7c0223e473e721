// Published pages as folded cards, as Python wrote them: tables, figures, searches, checks.

/** The cards of each study under its citation; tables that were not run are in a list. */
function studies(groups) {
  const shown = groups.flatMap(({ title, link: href, cards }) => {
    const others = cards.filter(({ run }) => !run);
    const words = `Published tables that were not run: ${others.length}`;
    return [
      make("h3", href ? make("a", { href, target: "_blank", rel: "noopener" }, title) : title),
      ...cards.filter(({ run }) => run).map(documentCard),
      others.length ? foldedCard([words], () => others.map(documentCard)) : "",
    ];
  });
  return shown.length ? shown : [empty("The results folder contains no tables.")];
}

const foldedCard = (summary, content) => folded("details.card.wide", summary, content);

/** A page under its title and the number of cells per verdict; found by title and command. */
function documentCard(one) {
  const summary = [make("span.heading", one.title), tally(one.tally)];
  const node = foldedCard(summary, () => contentOf(one));
  node.dataset.words = `${one.title} ${one.command ?? ""}`.toLowerCase();
  return node;
}

const contentOf = (one) => [
  make(
    "ul.claims",
    one.claims.map(claim),
    one.notes.map((note) => make("li", note)),
  ),
  one.command ? commandLine(one.command) : "",
  one.image ? image(one.image, one.title) : "",
  ...(one.cloud ? cloud(one.cloud, one.title) : []),
  one.head.length ? table(one) : "",
];

const table = ({ head, rows, title }) =>
  grid(
    head,
    rows.map((cells) => ({ cells })),
    title,
    "published",
  );

const claim = ([kind, verdict, statement]) =>
  make("li", make(`span.verdict.${kind}`, verdict), ` ${statement}`);

/** The number of cells per verdict, as a bar and in words. */
function tally(counts) {
  if (!counts.length) return "";
  const part = ([count, kind]) => make("span", { className: kind, style: `flex-grow: ${count}` });
  return make(
    "div",
    make("div.bar", { "aria-hidden": "true" }, counts.map(part)),
    make("p.sub", counts.map(([, , text]) => text).join(" · ")),
  );
}

/** A figure, from the pack that is opened at the first of them. */
function image(name, alt) {
  const node = make("img", { alt });
  packed("drawings").then(({ [name]: text }) => {
    node.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
  });
  return node;
}

/** The trials of a search: a point for each, by method. */
function cloud({ x, y, log, series }, label) {
  const point = ([at, value, text]) => ({ x: at, y: value, text: [text] });
  const describe = () => ({
    traces: series.map(({ method, points }) => meansTrace(points.map(point), method)),
    layout: { xaxis: titled(x, { type: log ? "log" : "linear" }), yaxis: titled(y) },
  });
  return [legend(series), picture(label, "curve", describe)];
}
