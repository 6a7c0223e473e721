// Elements and numbers. Text is only inserted as text, so nothing in a record can become markup.

function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "role") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== ""));
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const button = (text, onclick, properties = {}) =>
  make("button", { type: "button", onclick, ...properties }, text);

const empty = (text) => make("p", { className: "empty" }, text);

/** A labelled choice. options: pairs of value and text. */
function choice(label, options, value, onchange) {
  const items = options.map(([v, text]) =>
    make("option", { value: v, selected: v === value }, text),
  );
  const select = make("select", { onchange: (event) => onchange(event.target.value) }, items);
  return make("label", { className: "choice" }, make("span", {}, label), select);
}

/** A table with a heading row; cells that are numbers get a class, so that they align. */
function grid(head, lines, caption) {
  const cell = (content) =>
    make(
      "td",
      { className: typeof content === "number" ? "number" : "" },
      content instanceof Node ? content : String(content),
    );
  return make(
    "div",
    { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    make(
      "table",
      {},
      make("caption", {}, caption),
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          head.map((content) => make("th", { scope: "col" }, content)),
        ),
      ),
      make(
        "tbody",
        {},
        lines.map((line) => make("tr", {}, line.map(cell))),
      ),
    ),
  );
}

/** At most `most` of the nodes, and a button that shows the others. */
function limited(nodes, most) {
  if (nodes.length <= most) return nodes;
  const rest = make("div", { className: "more" });
  rest.append(
    button(`Show ${nodes.length - most} more`, () => rest.replaceWith(...nodes.slice(most))),
  );
  return [...nodes.slice(0, most), rest];
}

function figures(value, digits = 3) {
  if (!Number.isFinite(value)) return String(value);
  const short = Number(value.toPrecision(digits));
  return short !== 0 && Math.abs(short) < 1e-3 ? short.toExponential() : String(short);
}

/** An upper bound in three significant digits, rounded up, so that what is shown is one too. */
function atMost(value) {
  const near = Number(value.toPrecision(3));
  if (!Number.isFinite(value) || near >= value) return figures(near);
  return figures(near + 10 ** (Math.floor(Math.log10(value)) - 2));
}

/** A value of a metric in its unit, a dash for null. */
function valueText(value, metric, unit = " %") {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return "not finite";
  return metric.percent ? `${(100 * value).toFixed(1)}${unit}` : figures(value, 4);
}

/** Mean ± half width (n). */
function meanText(found, metric) {
  if (found.mean === null)
    return found.lost ? `no mean: ${found.lost} diverged` : found.measured ? "not finite" : "–";
  const half = found.half === null ? "" : ` ± ${valueText(found.half, metric)}`;
  return `${valueText(found.mean, metric)}${half} (${found.n})`;
}

/** The text that an element of the page contains, in gzip in base 64. */
async function unpackedText(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const unpacked = async (id) => JSON.parse(await unpackedText(id));
