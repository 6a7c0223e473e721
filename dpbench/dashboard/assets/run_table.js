// The table of runs: sorted by a column, searched, a page at a time, and saved as CSV or LaTeX.

const RUNS_PER_PAGE = 50;

/** The columns: a heading, the text of a row, and what it sorts by. */
function runColumns(metrics) {
  const { accountant } = page.state;
  const value = (metric) => (row) => row.metrics[data.metrics.indexOf(metric)];
  return [
    { head: "record", text: (row) => row.id },
    { head: "data set · model", text: (row) => row.facet },
    { head: "method", text: nameOf },
    { head: "seed", text: (row) => row.seed },
    {
      head: "ε",
      text: (row) => budgetWords(row, accountant),
      number: (row) => row.axis[accountant],
    },
    ...metrics.map((metric) => ({
      head: metric.group ? `${metric.label}: ${metric.group}` : metric.label,
      text: (row) => valueText(value(metric)(row), metric),
      number: value(metric),
    })),
    { head: "status", text: (row) => row.status },
  ];
}

const budgetWords = (row, accountant) => {
  const found = budget(row, accountant);
  return Number.isFinite(found) ? atMost(found) : found;
};

/** Smaller numbers first, then what is no number. */
function inOrder(a, b, column) {
  const numbers = [a, b].map((row) => column.number?.(row));
  const [x, y] = numbers.map((number) => (Number.isFinite(number) ? number : Infinity));
  if (column.number && x !== y) return x - y;
  return column.number ? 0 : byNumber(column.text(a), column.text(b));
}

function runList(rows, metrics) {
  const columns = runColumns(metrics);
  const view = { sorted: null, down: false, words: "", page: 0 };
  const body = make("div", {});
  const show = (change) => {
    Object.assign(view, { page: 0 }, change);
    body.replaceChildren(...runPage(selected(rows, columns, view), columns, view, show));
  };
  show({});
  const search = make("input", {
    type: "search",
    placeholder: "Search runs",
    "aria-label": "Search runs",
    oninput: (event) => show({ words: event.target.value }),
  });
  const chosen = () => selected(rows, columns, view);
  const files = [
    () => csvOf(runLines(chosen(), metrics)),
    () =>
      latexOf(
        [columns, ...chosen()].map((row, i) =>
          columns.map((one) => (i ? one.text(row) : one.head)),
        ),
      ),
  ];
  return [make("div", { className: "tools" }, search, ...tableExports(...files, "runs")), body];
}

/** Runs for a program: exact numbers, all epsilons, and a column for each setting. */
function runLines(rows, metrics) {
  const names = Object.keys(rows.length ? data.settings[rows[0].group] : {});
  const budgets = Object.keys(data.accountants);
  const fields = (row) => [
    ...[row.id, row.facet, row.method, row.seed, row.status],
    ...metrics.map((metric) => row.metrics[data.metrics.indexOf(metric)]),
    ...budgets.map((name) => row.axis[name]),
    ...names.map((name) => data.settings[row.group][name]),
  ];
  const head = ["record", "data set · model", "method", "seed", "status"];
  const measured = metrics.map((metric) => metric.name);
  const lines = [[...head, ...measured, ...budgets.map((name) => `ε, ${name}`), ...names]];
  return [...lines, ...rows.map(fields)].map((line) => line.map((field) => String(field ?? "")));
}

/** The rows that contain all words, in the chosen order. */
function selected(rows, columns, view) {
  const words = view.words.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = (row) => columns.map(({ text }) => text(row).toLowerCase()).join("\n");
  const matching = (row) => {
    const text = texts(row);
    return words.every((word) => text.includes(word));
  };
  const found = words.length ? rows.filter(matching) : [...rows];
  if (view.sorted === null) return found;
  const sign = view.down ? -1 : 1;
  return found.sort((a, b) => sign * inOrder(a, b, columns[view.sorted]));
}

function runPage(rows, columns, view, show) {
  const first = view.page * RUNS_PER_PAGE;
  const cells = (row) =>
    columns.map(({ text }, i) =>
      i ? text(row) : button(text(row), () => page.open(row.id), { className: "link code" }),
    );
  const heads = columns.map(({ head }, i) => sortButton(head, i, view, show));
  const some = rows.slice(first, first + RUNS_PER_PAGE);
  return [grid(heads, some.map(cells), `${rows.length} runs`), pager(rows.length, view, show)];
}

function sortButton(head, i, view, show) {
  const sign = view.sorted === i ? (view.down ? " ▼" : " ▲") : "";
  const down = view.sorted === i && !view.down;
  return button(`${head}${sign}`, () => show({ sorted: i, down }), { className: "sort" });
}

function pager(count, view, show) {
  const last = Math.max(0, Math.ceil(count / RUNS_PER_PAGE) - 1);
  const turn = (text, to) =>
    button(text, () => show({ page: to }), { disabled: to < 0 || to > last });
  const from = count ? view.page * RUNS_PER_PAGE + 1 : 0;
  const to = Math.min(count, (view.page + 1) * RUNS_PER_PAGE);
  return make(
    "div",
    { className: "pager" },
    turn("Previous", view.page - 1),
    make("span", {}, `${from} to ${to} of ${count}`),
    turn("Next", view.page + 1),
  );
}
