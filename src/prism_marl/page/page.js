// Puts the sections together. Sections about one run are rebuilt when another run is chosen.

function headlineFacts(section) {
  const run = DATA.runs[DATA.headline];
  if (!run) return;
  const add = (name, value, more, kind = "") => section.append(make("div", { class: "fact " + kind },
    make("p", { class: "name", text: name }), make("p", { class: "value " + (kind === "text" ? "text" : ""), text: value, title: value }), make("p", { class: "more", text: more })));
  const scores = run.scores;
  if (scores) {
    const [value, low, high] = scores.final;
    add("Final return (IQM)", fixed(value, Math.abs(value) / 2), run.seeds > 1 ? `95% CI [${fixed(low, Math.abs(value) / 2)}, ${fixed(high, Math.abs(value) / 2)}]` : "one seed, no interval", "lead");
  }
  add("Method", run.label, run.task, "text");
  if (scores) add("Training", short(scores.steps), `environment steps × ${plural(run.seeds, "seed")}`);
  if (run.spectra) {
    const own = run.spectra.layers.map((layer) => layer.rank - layer.common), total = own.reduce((a, b) => a + b, 0);
    const differ = run.spectra.layers.reduce((sum, layer, i) => sum + own[i] * layer.apart.y.at(-1), 0);
    if (total) add("Masks apart", percent(differ / total), `of own directions, mean over ${run.spectra.word} pairs`);
  }
  const size = run.footprint.find((row) => row.method === run.method);
  if (size) add("Parameters", short(size.parameters), Number.isFinite(size.private) ? `${percent(size.private / size.parameters)} of them private` : "");
  if (Number.isFinite(run.timing.rate)) add("Speed", short(run.timing.rate) + "/s", `steps of all seeds; ${duration(run.timing.seconds)} of training${run.timing.compile > 0 ? `, ${duration(run.timing.compile)} to compile` : ""}`);
}

function footprintSection(section, run) {
  const rows = [...run.footprint].sort((a, b) => a.parameters - b.parameters);
  if (!rows.length) return false;
  const grid = make("div", { class: "sizes" });
  const largest = Math.max(...rows.map((row) => row.parameters));
  const redraw = () => {
    grid.replaceChildren(...["Method", "Parameters", "", "Private", "Private share", ""].map((text, i) => make("span", { class: "head" + (i === 3 || i === 2 ? " num" : "") + (i > 3 ? " wide" : ""), text })));
    for (const row of rows) grid.append(...sizeRow(row, largest, row.method === run.method));
  };
  section.append(make("h2", { text: "Footprint" }), make("div", { class: "panel" }, grid),
    caption("What diversity costs.", "All parameters of the agents' networks on this task and width; hatched is what belongs to single agents. Look for methods that give agents a matrix of their own yet keep the hatched part small: it is what grows with every further agent."));
  figure(grid, redraw);
  return true;
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

function trainingSection(section, run) {
  const names = Object.keys(run.training);
  if (!names.length) return false;
  const grid = make("div", { class: "multiples small" });
  section.append(make("h2", { text: "Training signals" }), grid,
    caption("Is the optimiser healthy.", "Median over seeds, band from the lowest to the highest seed. Look for a temporal-difference loss that settles, an orthogonality term near zero (the shared singular vectors stay orthonormal) and gradients without spikes."));
  for (const name of names) {
    const host = make("div", { class: "chart" });
    grid.append(make("div", { class: "panel" }, make("h3", { text: name.replaceAll("_", " ") }), host));
    figure(host, () => lineChart(host, {
      series: [{ name, colour: shade(run.colour), thin: true, ...run.training[name] }], height: 128, label: `${name} over training; arrow keys read values`,
    }));
  }
  return true;
}

function recordSection(section, run) {
  const table = (rows) => make("div", { class: "settings" }, ...rows.map(([name, value]) => make("div", {}, make("span", { text: name }), make("span", { text: value }))));
  const block = (title, rows) => (rows.length ? [make("h3", { text: title, style: { margin: "14px 0 4px" } }), table(rows)] : []);
  section.append(make("h2", { text: "Record" }),
    make("div", { class: "panel" }, make("h3", { text: "Run folder: " + run.name }), ...block("Configuration", run.config), ...block("Machine and versions", run.machine)),
    caption("What was run.", "Every setting and version that the run folder keeps; the same configuration and seed start the same run."));
  section.append(make("h3", { text: "Missing or worth knowing", style: { marginTop: "14px" } }),
    make("ul", { class: "notes" }, ...(run.notes.length ? run.notes : ["Nothing is missing."]).map((text) => make("li", { text }))));
  return true;
}

const RUN_SECTIONS = [
  ["spectrum", "Spectrum", spectrumSection], ["replay", "Replay", replaySection], ["footprint", "Footprint", footprintSection],
  ["training", "Training", trainingSection], ["record", "Record", recordSection],
];

function showRun(index) {
  const run = DATA.runs[index];
  for (const [id, , build] of RUN_SECTIONS) {
    const section = byId(id);
    forgetFigures(section);
    section.replaceChildren();
    section.hidden = false; // a hidden section has no width to draw into
    section.hidden = !build(section, run);
  }
  const titles = { learning: "Learning", scores: "End points", ...Object.fromEntries(RUN_SECTIONS.map(([id, title]) => [id, title])) };
  byId("contents").replaceChildren(...Object.entries(titles).filter(([id]) => !byId(id).hidden).map(([id, text]) => make("a", { href: "#" + id, text })));
}

function chooser(section) {
  if (DATA.runs.length < 2) return;
  const picker = make("select", { id: "run-picker" }, ...DATA.runs.map((run, index) => make("option", { value: index, text: `${run.label} on ${run.task}` })));
  picker.value = DATA.headline;
  picker.addEventListener("change", () => showRun(Number(picker.value)));
  section.hidden = false;
  section.append(make("h2", { text: "Inside one run" }), make("div", { class: "bar" }, make("label", { for: "run-picker", text: "Show" }), picker));
}

startTheme();
headlineFacts(byId("headline"));
for (const [id, build] of [["learning", learningSection], ["scores", scoresSection]]) {
  const section = byId(id);
  section.hidden = false;
  section.hidden = !build(section);
}
chooser(byId("chooser"));
if (DATA.runs.length) showRun(DATA.headline);
byId("foot").textContent = `Made by prism-marl ${DATA.version}. This file is complete in itself: it asks nothing of the network.`;
