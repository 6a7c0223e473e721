// Small pictures within a table: a mean with its interval, on the axis that its column shares.
// An end is a bar, or an arrow where the interval leaves the axis.

const WHISKERS = { width: 120, height: 26, margin: 10 };

function whiskers(row, column, { span: [low, high], baseline }) {
  const cell = row.forest;
  if (!cell) return "";
  const { width, height, margin } = WHISKERS;
  const share = (value) => (value - low) / (high - low || 1);
  const place = (value) => margin + (width - 2 * margin) * Math.min(1, Math.max(0, share(value)));
  const beyond = (value) => share(value) < 0 || share(value) > 1;
  const look = page.looks.get(row.method);
  const middle = height / 2;
  const line = (x1, x2, y1, y2) =>
    svg("line", { x1, x2, y1, y2, class: `stroke-${look.colour}`, "stroke-width": 1.6 });
  const ends =
    cell.low === null
      ? []
      : [
          line(place(cell.low), place(cell.high), middle, middle),
          ...[cell.low, cell.high].flatMap((end) => {
            const [x, back] = [place(end), Math.sign(0.5 - share(end)) * (beyond(end) ? 4 : 0)];
            return [-4, 4].map((up) => line(x, x + back, middle, middle + up));
          }),
        ];
  const values = [cell.mean, cell.low, cell.high].map((value) => valueText(value, column));
  const label = `${values[0]}, interval from ${values[1]} to ${values[2]}`;
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    svg("line", { x1: 0, x2: width, y1: middle, y2: middle, class: "axis" }),
    baseline ? svg("line", { x1: place(0), x2: place(0), y1: 0, y2: height, class: "axis" }) : "",
    ...ends,
    svg("path", {
      d: PATHS[look.mark],
      class: `fill-${look.colour}`,
      transform: `translate(${place(cell.mean) - 12} ${middle - 8})`,
    }),
  );
}
