// Elements and numbers. Text is only inserted as text, so nothing in a record can become markup.

/** An element: make("p.sub", {title: "..."}, ...children), where the properties may be left out. */
function make(kind, ...children) {
  const [tag, ...classes] = kind.split(".");
  const node = document.createElement(tag);
  node.className = classes.join(" ");
  const properties = children[0]?.constructor === Object ? children.shift() : {};
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "role") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.flat(2).filter((child) => child !== null && child !== ""));
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const at = (id) => document.getElementById(id);
const button = (text, onclick, properties = {}) =>
  make("button", { type: "button", onclick, ...properties }, text);
const link = (text, run) => button(text, () => choose({ run }), { className: "link" });
const empty = (text) => make("p.empty", text);

/** At most `most` of the nodes, and a button that shows the others. */
function limited(nodes, most) {
  if (nodes.length <= most) return nodes;
  const all = () => rest.replaceWith(...nodes.slice(most));
  const rest = make("div.more", button(`Show ${nodes.length - most} more`, all));
  return [...nodes.slice(0, most), rest];
}

/** Details that are filled when they are first opened. */
function folded(kind, summary, content) {
  const node = make(kind, make("summary", summary));
  const once = () => node.children.length > 1 || node.append(...content());
  node.addEventListener("toggle", once);
  return node;
}

function figures(value, digits = 3) {
  if (!Number.isFinite(value)) return String(value);
  const short = Number(value.toPrecision(digits));
  return short !== 0 && Math.abs(short) < 1e-3 ? short.toExponential() : String(short);
}

/** A value of a metric in its unit, a dash for null. */
function valueText(value, metric) {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return "not finite";
  return metric.percent ? `${(100 * value).toFixed(1)} %` : figures(value);
}

/** Mean ± half width (n). */
function meanText({ mean, half, n, lost }, metric) {
  if (mean === null) return lost ? `no mean: ${lost} diverged` : n ? "not finite" : "–";
  const interval = half === null ? "" : ` ± ${valueText(half, metric)}`;
  return `${valueText(mean, metric)}${interval} (${n})`;
}

/** A difference ± half width (n). */
const gapText = (gap, metric) => (gap.mean > 0 ? "+" : "") + meanText(gap, metric);

/** The text that an element of the page contains, in gzip in base 64. */
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(at(id).textContent), (sign) => sign.charCodeAt());
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const packs = {};

/** The JSON that an element of the page contains, unpacked on first use. */
function packed(id) {
  packs[id] ??= unpacked(id).then(JSON.parse);
  return packs[id];
}
