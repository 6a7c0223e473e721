// The view: what is chosen and ticked, stored in the address after the #, so that a link shows it.
// offered: the values of each choice, the first of which is its default, and of each filter and
// other list of several.

/** The view of an address, without what is not offered; a filter that is null passes everything. */
function viewOf(address, { choices, filters, lists }) {
  const said = new URLSearchParams(address.replace(/^#/, ""));
  const view = {};
  for (const [name, values] of Object.entries(choices))
    view[name] = values.includes(said.get(name)) ? said.get(name) : (values[0] ?? "");
  for (const [name, values] of Object.entries({ ...filters, ...lists })) {
    const wanted = said.getAll(name);
    view[name] = said.has(name) ? values.filter((value) => wanted.includes(value)) : null;
  }
  return view;
}

/** The address of a view: only what differs from the default. */
function addressOf(view, { choices, filters, lists }) {
  const said = new URLSearchParams();
  for (const name of Object.keys({ ...filters, ...lists }))
    for (const value of view[name]?.length === 0 ? [""] : (view[name] ?? []))
      said.append(name, value);
  for (const [name, values] of Object.entries(choices))
    if (view[name] !== (values[0] ?? "")) said.set(name, view[name]);
  return said.toString();
}

/** The rows that pass all filters; a row without a value, such as an audit's data set, does. */
function passing(rows, view, filters) {
  const ticked = Object.keys(filters).filter((name) => view[name]);
  const passes = (value, name) => value == null || view[name].includes(value);
  return rows.filter((row) => ticked.every((name) => passes(row[name], name)));
}
