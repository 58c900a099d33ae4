// The footprint panel's second table: what every method costs as the team grows, all else being equal.

function teamsPanel(run) {
  const rows = run.footprint.filter((row) => row.teams?.length), sizes = rows[0]?.teams.map(([agents]) => agents) ?? [];
  const known = rows.filter((row) => row.teams.length === sizes.length && row.teams.every(([agents], k) => agents === sizes[k]));
  if (sizes.length < 2 || known.length < 2) return null;
  known.sort((a, b) => a.teams.at(-1)[1] - b.teams.at(-1)[1]);
  const most = Math.log10(Math.max(...known.map((row) => row.teams.at(-1)[1]))), least = Math.log10(Math.min(...known.map((row) => row.teams[0][1]))) - 0.3;
  const width = (value) => Math.max(2, (100 * (Math.log10(value) - least)) / (most - least)) + "%";
  const table = make("table", { class: "teams" });
  const redraw = () => {
    const head = make("tr", {}, make("th", { text: "Method" }), ...sizes.map((agents) => make("th", { class: "num", text: `${agents} agents` })), make("th", { class: "num wide", text: "growth" }));
    table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...known.map((row) => teamRow(row, row.method === run.method, width))));
  };
  const panel = make("div", { class: "panel", "data-what": "teams" }, make("h3", { text: "The same network for larger teams" }), make("div", { class: "scroll" }, table),
    caption("What a team costs.", teamsSentence(run, known) + " Bars have a logarithmic scale. Observations, actions, width and settings stay as in this run; only the number of agents changes."));
  figure(table, redraw);
  return panel;
}

function teamRow(row, mine, width) {
  const colour = shade(row.colour), first = row.teams[0][1], last = row.teams.at(-1)[1];
  const cells = row.teams.map(([, parameters]) => make("td", { class: "num" }, whole(parameters), make("i", { class: "track" }, make("b", { style: { width: width(parameters), backgroundColor: colour } }))));
  return make("tr", {}, make("th", { class: mine ? "me" : "" }, make("span", { class: "swatch", style: { background: colour } }), " " + row.label), ...cells, make("td", { class: "num wide", text: "× " + trim(last / first) }));
}

// What this method costs beside a network for each agent.
function teamsSentence(run, rows) {
  const mine = rows.find((row) => row.method === run.method), separate = rows.find((row) => row.method === "nops");
  if (!mine || !separate || mine === separate) return "From the smallest team to the largest.";
  const [few, first] = mine.teams[0], [many, last] = mine.teams.at(-1), each = (last - first) / (many - few);
  const share = (at) => percent(mine.teams[at][1] / separate.teams[at][1]);
  return `A further agent costs ${mine.label} ${short(each)} numbers on average, and ${separate.label} ${whole(separate.teams[0][1] / few)}: at ${few} agents ${mine.label} has ${share(0)} of the parameters of separate networks, at ${many} agents ${share(mine.teams.length - 1)}.`;
}
