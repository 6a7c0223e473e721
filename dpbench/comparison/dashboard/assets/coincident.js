// Marks that coincide stay where they are, and are told apart by the names of their points.

/** The share of an axis within which marks coincide. */
const NEAR = 0.025;

const MOST_NAMES = 16;

/** How far apart points are along an axis, as a share of it; the axis of epsilon is logarithmic. */
const apart = (from, to, { type, range: [low, high] }) =>
  Math.abs(type === "log" ? Math.log10(from / to) : from - to) / (high - low);

/** The points, with the names and means of those that coincide with them in their texts. */
function named(points, { xaxis, yaxis }) {
  const others = (one) =>
    points.filter(
      (other) =>
        other !== one && apart(one.x, other.x, xaxis) < NEAR && apart(one.y, other.y, yaxis) < NEAR,
    );
  const also = ({ text: [name, , mean] }) => `also here: ${name}, ${mean}`;
  return points.map((point) => ({ ...point, text: [...point.text, ...others(point).map(also)] }));
}

/** The names of points that share one epsilon, beside them: right and left in turn. */
function names(points, { xaxis, yaxis }) {
  const shared = points.every(({ x }) => apart(x, points[0].x, xaxis) < NEAR);
  if (!shared || points.length < 2 || points.length > MOST_NAMES) return [];
  const upwards = [...points].sort((a, b) => a.y - b.y);
  const side = (way) => upwards.filter((_, i) => i % 2 === way);
  return [...column(side(0), 1, yaxis), ...column(side(1), -1, yaxis)];
}

/** Names on one side of their points, as close to them as lines of text allow. */
function column(upwards, way, { range: [low, high] }) {
  const line = (high - low) / 18;
  let last = low;
  return upwards.map(({ x, y, method, text: [name] }, i) => {
    last = Math.min(Math.max(y, last + line), high - line * (upwards.length - i));
    const color = colour(lookOf(method).colour);
    const text = plain(shortened(name, 16, 24));
    const label = { text, font: { size: 11, color }, xanchor: way > 0 ? "left" : "right" };
    const arrow = { arrowhead: 0, arrowwidth: 1, arrowcolor: color, standoff: 6 };
    return { x: Math.log10(x), y, ax: 30 * way, ay: last, ayref: "y", ...label, ...arrow };
  });
}
