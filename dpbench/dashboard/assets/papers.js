// The papers' tables with our numbers, as Python wrote them.

/** One card per table that was run; the others are in a collapsed list. */
function tableCards() {
  const run = data.tables.filter((table) => table.run);
  const others = data.tables.filter((table) => !table.run);
  const title = `Published tables that were not run: ${others.length}`;
  return [
    ...run.map(tableCard),
    others.length ? folded([title], () => others.map(tableCard)) : "",
    data.tables.length ? "" : empty("The results folder contains no tables."),
  ];
}

/** A card that is filled when it is first opened, or printed. */
function folded(summary, content) {
  const node = make("details.card.wide", make("summary", summary));
  const once = () => node.children.length > 1 || node.append(...content());
  for (const event of ["toggle", "fill"]) node.addEventListener(event, once);
  return node;
}

/** A table with its claims, under its title and the number of cells per verdict. */
const tableCard = (table) =>
  folded([make("span.heading", table.title), tally(table.tally)], () => [
    make("ul.claims", table.claims.map(claim)),
    table.command ? commandLine(table.command) : make("p.sub", WITHOUT_COMMAND),
    grid(
      table.head,
      table.rows.map((cells) => ({ cells })),
      table.title,
      "published",
    ),
  ]);

const WITHOUT_COMMAND =
  "Made with other settings, or in part: the file name does not give the command.";

const claim = ([kind, verdict, statement]) =>
  make("li", make(`span.verdict.${kind}`, verdict), ` ${statement}`);

/** The number of cells per verdict, as a bar and in words. */
function tally(counts) {
  const part = ([count, kind]) => make("span", { className: kind, style: `flex-grow: ${count}` });
  return make(
    "div",
    make("div.bar", { "aria-hidden": "true" }, counts.map(part)),
    make("p.sub", counts.map(([, , text]) => text).join(" · ")),
  );
}
