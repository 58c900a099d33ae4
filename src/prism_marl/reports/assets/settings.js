// In which settings the runs differ: a table of these fields, with what differs from a chosen run highlighted.

const SIDE_BY_SIDE = 6; // runs in columns of their own; more are gathered by their values

function settingsSection(section) {
  const runs = DATA.runs;
  if (runs.length < 2) return false;
  const names = runs.map(runName);
  const option = (index) => make("option", { value: index, text: names[index] });
  const all = runs.map((_, index) => index);
  const base = make("select", { "aria-label": "Compare" }, ...all.map(option));
  const other = make("select", { "aria-label": "with" });
  const facts = make("select", { "aria-label": "What is compared" }, make("option", { value: "config", text: "settings" }), make("option", { value: "machine", text: "machine and versions" }));
  const stage = make("div", { class: "comparison" });
  base.value = DATA.headline;
  const offer = () => {
    const before = other.value;
    other.replaceChildren(make("option", { value: "all", text: runs.length === 2 ? "the other run" : `all ${runs.length - 1} other runs` }), ...(runs.length > 2 ? all.filter((index) => index !== Number(base.value)).map(option) : []));
    if ([...other.options].some((one) => one.value === before)) other.value = before;
  };
  const redraw = () => {
    const first = Number(base.value), rest = other.value === "all" ? all.filter((index) => index !== first) : [Number(other.value)];
    stage.replaceChildren(...comparison(facts.value, first, rest, names));
  };
  base.addEventListener("change", () => { offer(); redraw(); });
  for (const select of [other, facts]) select.addEventListener("change", redraw);
  section.append(heading("Compare settings"), make("div", { class: "bar" }, make("label", {}, "Compare", base), make("label", {}, "with", other), make("label", {}, "by", facts)), stage,
    caption("How do the runs differ?", "The tables list every field in which these runs differ. A value that differs from that of the first run is highlighted. A dash means that a run has no such field: every method has settings of its own."));
  offer();
  redraw();
  return true;
}

function comparison(facts, first, rest, names) {
  const chosen = [first, ...rest];
  const tables = new Map(chosen.map((index) => [index, new Map(DATA.runs[index][facts])]));
  const of = (index, field) => tables.get(index).get(field);
  const fields = [...new Set(chosen.flatMap((index) => [...tables.get(index).keys()]))];
  const values = (field) => new Set(chosen.filter((index) => tables.get(index).has(field)).map((index) => of(index, field)));
  const equal = fields.filter((field) => rest.every((index) => of(index, field) === of(first, field)));
  const differing = fields.filter((field) => !equal.includes(field));
  // A field that all runs which have it agree on tells methods apart, not runs: it comes second.
  const shared = differing.filter((field) => values(field).size > 1), own = differing.filter((field) => values(field).size === 1);
  const build = (some) => make("div", { class: "panel scroll", tabindex: 0, role: "region", "aria-label": "Fields that differ" }, (rest.length < SIDE_BY_SIDE ? sideBySide : gathered)(some, first, rest, of, names));
  const folded = (text, open, child) => make("details", { class: "panel folded", open }, make("summary", { text }), child);
  const list = (some) => make("div", { class: "settings" }, ...some.map((field) => make("div", {}, make("span", { text: field }), make("span", { text: of(first, field) }))));
  return [make("p", { class: "start", role: "status", text: told(fields, shared, own) }), shared.length ? build(shared) : null,
    own.length ? folded(`Show ${count(own, "more field")} that only some of these runs have`, !shared.length, build(own)) : null,
    equal.length ? folded(`Show ${count(equal, "field")} with equal values`, false, list(equal)) : null].filter(Boolean);
}

function count(fields, word) { return plural(fields.length, word); }

function told(fields, shared, own) {
  if (!fields.length) return "The folders of these runs do not say.";
  if (!shared.length && !own.length) return `All ${count(fields, "field")} have equal values.`;
  const some = own.length ? `, and ${own.length} more ${own.length === 1 ? "is" : "are"} there in some of the runs only` : "";
  return `Of ${count(fields, "field")}, ${shared.length} ${shared.length === 1 ? "has" : "have"} different values${some}.`;
}

// Roles are said again because a phone shows rows as blocks, which takes a table its meaning.
function comparedTable(columns, rows) {
  return make("table", { class: "stacked differences", role: "table" },
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...columns.map((text) => make("th", { scope: "col", role: "columnheader", text })))),
    make("tbody", { role: "rowgroup" }, ...rows));
}

function comparedRow(field, ...cells) { return make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader", text: field }), ...cells); }

function comparedCell(label, value, highlighted) {
  return make("td", { role: "cell", "data-label": label }, highlighted ? make("mark", { text: value ?? "–" }) : make("span", { text: value ?? "–" }));
}

// A value is highlighted, not its absence: of two methods each has many fields that the other has not.
function differs(value, reference) { return value !== undefined && value !== reference; }

function sideBySide(fields, first, rest, of, names) {
  return comparedTable(["Field", ...[first, ...rest].map((index) => names[index])], fields.map((field) => comparedRow(field,
    ...[first, ...rest].map((index) => comparedCell(names[index], of(index, field), differs(of(index, field), of(first, field)))))));
}

// Many runs: each value once, with the runs that have it.
function gathered(fields, first, rest, of, names) {
  const row = (field) => {
    const groups = new Map();
    for (const index of rest) groups.set(of(index, field), [...(groups.get(of(index, field)) || []), index]);
    const sorted = [...groups].sort((a, b) => b[1].length - a[1].length);
    const group = ([value, runs]) => {
      const shown = (text) => make(differs(value, of(first, field)) ? "mark" : "span", { text });
      if (runs.length === 1) return make("div", { class: "value" }, shown(value ?? "–"), make("small", { text: " " + names[runs[0]] }));
      return make("details", {}, make("summary", {}, shown(value ?? "–"), make("small", { text: " " + plural(runs.length, "run") })), make("div", { text: runs.map((index) => names[index]).join(", ") }));
    };
    return comparedRow(field, comparedCell(names[first], of(first, field), false), make("td", { role: "cell", "data-label": "other runs" }, ...sorted.map(group)));
  };
  return comparedTable(["Field", names[first], "Other runs, by their values"], fields.map(row));
}
