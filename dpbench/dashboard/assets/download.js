// Files that the page offers: tables as CSV and LaTeX, pictures as SVG and PNG.

/** Save an address (data: or blob:) under a name. */
function save(address, name) {
  const link = make("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}

function saveText(text, name, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  save(address, name);
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A field of CSV; a text that a spreadsheet would take for a formula is marked as text. */
function quotedField(text) {
  const marked = /^[=+@-]/.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(marked) ? `"${marked.replace(/"/g, '""')}"` : marked;
}

/** Lines of texts as CSV, the first of them the header. */
const csvOf = (lines) => lines.map((line) => `${line.map(quotedField).join(",")}\n`).join("");

const latexText = (text) => [...text].map((sign) => data.latex[sign] ?? sign).join("");

/** Lines of texts as a LaTeX table with the rules of booktabs. */
function latexOf([head, ...lines]) {
  const row = (cells) => `${cells.map(latexText).join(" & ")} \\\\\n`;
  const columns = "l".repeat(head.length);
  const body = `\\toprule\n${row(head)}\\midrule\n${lines.map(row).join("")}\\bottomrule\n`;
  return `\\begin{tabular}{${columns}}\n${body}\\end{tabular}\n`;
}

/** Buttons that save the texts that two functions give. */
const tableExports = (csv, tex, name) => [
  button("CSV", () => saveText(csv(), `${name}.csv`, "text/csv")),
  button("LaTeX", () => saveText(tex(), `${name}.tex`, "text/x-tex")),
];

/** Buttons that save a plot under its title. */
function pictureExports(node, title) {
  const name = title.replace(/[^\w-]+/g, "-");
  const one = (format) =>
    button(format.toUpperCase(), async () => {
      if (!drawn.has(node)) draw(node);
      const { clientWidth: width, clientHeight: height } = node;
      const scale = format === "png" ? 3 : 1;
      save(await Plotly.toImage(node, { format, width, height, scale }), `${name}.${format}`);
    });
  return make("div", { className: "exports" }, one("svg"), one("png"));
}
