// The selection, stored in the address after the #, so that a link shows the same view.

const FILTERS = {
  dataset: "Data set",
  model: "Model",
  method: "Method",
  seed: "Seed",
  status: "Status",
};
const FIXED_FILTERS = Object.keys(FILTERS);
const CHOICES = [
  "board",
  "budget",
  "show",
  "metric",
  "axis",
  "scale",
  "calibration",
  "fairness",
  "accountant",
  "theme",
  "with",
  "run",
];

const byNumber = (a, b) => a.localeCompare(b, "en", { numeric: true });

/** The values that each filter offers; audits are about no data set and no model. */
function offered(rows) {
  const found = (name) => rows.map((row) => row[name]).filter((value) => value !== null);
  const values = (name) => [...new Set(found(name))].sort(byNumber);
  return Object.fromEntries(Object.keys(FILTERS).map((name) => [name, values(name)]));
}

/** The state that a hash encodes; invalid parts of it are ignored. */
function parsed(hash, defaults, options) {
  const state = { ...defaults };
  const known = new Map(Object.entries(options));
  for (const part of hash.replace(/^#/, "").split("&")) {
    const [key, text = ""] = part.split("=");
    const name = decoded(key);
    const values = text.split(",").map(decoded);
    if (CHOICES.includes(name)) {
      if (!known.has(name) || known.get(name).includes(values[0])) state[name] = values[0];
    } else if (Object.hasOwn(FILTERS, name)) {
      state[name] = known.get(name).filter((value) => values.includes(value));
    }
  }
  return state;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/** The hash of a state: only what differs from the default. */
function hashOf(state, defaults) {
  const parts = [];
  for (const name of Object.keys(FILTERS)) {
    const values = state[name]?.map(encodeURIComponent);
    if (values) parts.push(`${encodeURIComponent(name)}=${values.join(",")}`);
  }
  for (const name of CHOICES) {
    if (state[name] !== defaults[name]) parts.push(`${name}=${encodeURIComponent(state[name])}`);
  }
  return parts.join("&");
}

/** The rows that pass all filters; a filter that is null passes everything, and so does a row. */
function passing(rows, state) {
  const passes = (value, chosen) => !chosen || value === null || chosen.includes(value);
  return rows.filter((row) => Object.keys(FILTERS).every((f) => passes(row[f], state[f])));
}
