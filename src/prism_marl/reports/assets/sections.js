// Sections about one run: its sizes and its record.

function footprintSection(section, run) {
  const rows = [...run.footprint].sort((a, b) => a.parameters - b.parameters);
  if (!rows.length) return false;
  const grid = make("div", { class: "sizes" });
  const largest = Math.max(...rows.map((row) => row.parameters));
  const redraw = () => {
    grid.replaceChildren(...["Method", "Parameters", "", "Private", "Private share", ""].map((text, i) => make("span", { class: "head" + (i === 3 || i === 2 ? " num" : "") + (i > 3 ? " wide" : ""), text })));
    for (const row of rows) grid.append(...sizeRow(row, largest, row.method === run.method));
  };
  section.append(heading("Footprint", { "": "footprint" }), make("div", { class: "panel" }, grid),
    caption("What diversity costs.", "All parameters of the agents' networks on this task and width; hatched is what belongs to single agents. Look for methods that give agents a matrix of their own yet keep the hatched part small: it is what grows with every further agent."));
  figure(grid, redraw);
  const teams = teamsPanel(run);
  if (teams) section.append(teams);
  const ship = shipping(run.deployment);
  if (ship) section.append(ship);
  return true;
}

// What one agent's trained policy costs where it is played.
function shipping(cost) {
  if (!cost || !Number.isFinite(cost.bytes)) return null;
  const factored = cost.factored_bytes < cost.bytes ? `, ${whole(cost.factored_bytes)} with shared factors` : "";
  const rows = [["Bytes to ship", whole(cost.bytes) + factored], ["Multiply-adds for an action", whole(cost.multiply_adds)],
    ["Microseconds for an action", `${cost.microseconds.toFixed(1)} (measured: numpy, one sample)`]];
  return make("div", { class: "panel settings", "data-what": "deployment" }, make("div", {}, make("span", { text: "For each agent" }), make("span", {})),
    ...rows.map(([name, value]) => make("div", {}, make("span", { text: name }), make("span", { text: value }))));
}

function sizeRow(row, largest, mine) {
  const colour = shade(row.colour), share = Number.isFinite(row.private) ? row.private / row.parameters : NaN;
  const part = (size, own) => make("span", { class: own ? "own" : "", style: { width: size + "%", backgroundColor: colour } });
  const own = Number.isFinite(share) && share > 0 ? (100 * row.private) / largest : 0;
  const total = (100 * row.parameters) / largest;
  const bytes = Number.isFinite(row.bytes) ? `, ${short(row.bytes)} bytes` : "";
  return [
    make("span", { class: mine ? "who me" : "who" }, make("span", { class: "swatch", style: { background: colour } }), " " + row.label),
    make("span", { class: "track", role: "img", "aria-label": `${whole(row.parameters)} parameters${bytes}`, title: `${whole(row.parameters)} parameters${bytes}` }, part(total - own, false), own ? part(own, true) : null),
    make("span", { class: "num", text: whole(row.parameters) }), make("span", { class: "num", text: whole(row.private) }),
    make("span", { class: "track thin wide" }, Number.isFinite(share) && share > 0 ? part(100 * share, true) : null),
    make("span", { class: "num wide", text: percent(share) }),
  ];
}

function recordSection(section, run) {
  const table = (rows) => make("div", { class: "settings" }, ...rows.map(([name, value]) => make("div", {}, make("span", { text: name }), make("span", { text: value }))));
  const block = (title, rows) => (rows.length ? make("details", { class: "panel" }, make("summary", { text: `${title} (${rows.length})` }), table(rows)) : null);
  section.append(heading("Record"), make("p", { class: "caption" }, "Run folder ", make("b", { text: run.name })),
    ...[block("Configuration", run.config), block("Machine and versions", run.machine)].filter(Boolean),
    caption("How was this run made?", "These are all settings and versions that the run folder keeps. The same settings and the same seed give the same run again."));
  return true;
}
