// Files that the page offers: tables as CSV and LaTeX, pictures as SVG and PNG.

function save(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A field of CSV; a text that a spreadsheet would take for a formula is marked as text. */
function quotedField(text) {
  const marked = /^[=+@-]/.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(marked) ? `"${marked.replace(/"/g, '""')}"` : marked;
}

/** Lines of texts as CSV, the first of them the header. */
const csvOf = (lines) => lines.map((line) => `${line.map(quotedField).join(",")}\n`).join("");

/** Lines of texts as a LaTeX table with the rules of booktabs. */
function latexOf([head, ...lines]) {
  const escaped = (text) => [...text].map((sign) => data.latex[sign] ?? sign).join("");
  const row = (cells) => `${cells.map(escaped).join(" & ")} \\\\\n`;
  const body = `\\toprule\n${row(head)}\\midrule\n${lines.map(row).join("")}\\bottomrule\n`;
  return `\\begin{tabular}{${"l".repeat(head.length)}}\n${body}\\end{tabular}\n`;
}

/** Buttons that save the text that a function gives for a suffix. */
const textExports = (text, name) =>
  Object.entries({ csv: "CSV", tex: "LaTeX" }).map(([suffix, label]) =>
    button(label, () => save(text(suffix), `${name}.${suffix}`)),
  );

/** Buttons that save a plot under its title, with what it says of its data in the file. */
function pictureExports(node, title, said) {
  const filename = title.replace(/[^\w-]+/g, "-");
  const one = (format) =>
    button(format.toUpperCase(), () => {
      if (!node.data) draw(node);
      const { clientWidth: width, clientHeight: height } = node;
      const text = [title, said().join(", "), data.command].filter(Boolean).map(plain).join("<br>");
      const note = { text, xref: "paper", yref: "paper", x: 0, y: 1, yanchor: "bottom" };
      const caption = { ...note, xanchor: "left", align: "left", showarrow: false, yshift: 12 };
      const layout = {
        ...node.layout,
        annotations: [...(node.layout.annotations ?? []), caption],
        margin: { ...node.layout.template.layout.margin, t: 76 },
        paper_bgcolor: colour("card"),
        showlegend: true,
      };
      const size = { format, width: width + 160, height: height + 66 };
      const figure = { data: node.data, layout };
      Plotly.downloadImage(figure, { ...size, filename, scale: format === "png" ? 3 : 1 });
    });
  return make("div.exports", one("svg"), one("png"));
}
