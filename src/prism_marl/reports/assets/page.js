// Puts the sections together. Sections about one run are rebuilt when another run is chosen.

function addFact(section, name, value, more, kind = "") {
  section.append(make("div", { class: "fact " + kind }, make("p", { class: "name", text: name }),
    make("p", { class: "value " + (kind.includes("text") ? "text" : ""), text: value, title: value }), make("p", { class: "more", text: more })));
}

function headlineFacts(section) {
  const methods = new Set(DATA.runs.map((run) => run.method)), tasks = new Set(DATA.runs.map((run) => run.task));
  if (!DATA.runs.length) section.hidden = true;
  else if (methods.size > 1 || tasks.size > 1) studyFacts(section, methods, tasks);
  else runFacts(section, DATA.runs[DATA.headline]);
}

function studyFacts(section, methods, tasks) {
  const scored = DATA.runs.filter((run) => run.scores), sum = (of) => scored.reduce((total, run) => total + (of(run) || 0), 0);
  // A winner is named only where the seeds say so (report/finals.py).
  const named = DATA.winners.filter((one) => one.run !== null);
  if (DATA.winners.length > 1) {
    const wins = (name) => named.filter((one) => one.family === name).length;
    const told = [...new Set(named.map((one) => one.family))].map((name) => `${name} on ${wins(name)}`);
    addFact(section, "Clear winners", `${named.length} of ${DATA.winners.length}`, told.join(", ") || [...new Set(DATA.winners.map((one) => one.why))].join(", or "), "lead");
  } else if (named.length) {
    const best = DATA.runs[named[0].run], [value, low, high] = best.scores.words;
    addFact(section, "Highest final return", value, `${best.label}, 95% interval ${low} to ${high}`, "lead");
  } else if (DATA.winners.length) {
    addFact(section, "Winner", "none named", DATA.winners[0].why, "lead text");
  }
  addFact(section, "Methods", methods.size, [...new Set(DATA.runs.map((run) => run.family))].slice(0, 4).join(", ") + (methods.size > 4 ? ", …" : ""));
  addFact(section, "Tasks", tasks.size, [...tasks].slice(0, 2).join(", ") + (tasks.size > 2 ? ", …" : ""));
  addFact(section, "Runs", DATA.runs.length, plural(sum((run) => run.seeds), "seed") + " together");
  addFact(section, "Training", short(sum((run) => run.scores.steps * run.seeds)), "environment steps, all seeds together");
  const seconds = sum((run) => run.timing.seconds);
  if (seconds) addFact(section, "Training time", duration(seconds), "all runs together, without compiling and evaluating");
}

function runFacts(section, run) {
  const add = (...fact) => addFact(section, ...fact);
  const scores = run.scores;
  if (scores) {
    const [value, low, high] = scores.words;
    add("Final return", value, run.seeds > 1 ? `interquartile mean of ${run.seeds} seeds, 95% interval ${low} to ${high}` : "one seed, so no interval", "lead");
  }
  add("Method", run.label, run.task, "text");
  if (scores) add("Training", short(scores.steps), `environment steps × ${plural(run.seeds, "seed")}`);
  if (run.spectra) {
    const own = run.spectra.layers.map((layer) => layer.rank - layer.common), total = own.reduce((a, b) => a + b, 0);
    const differ = run.spectra.layers.reduce((sum, layer, i) => sum + own[i] * layer.apart.y.at(-1), 0);
    if (total) add("Masks that differ", percent(differ / total), `of own directions, mean over pairs of ${run.spectra.word}s`);
  }
  const size = run.footprint.find((row) => row.method === run.method);
  if (size) add("Parameters", short(size.parameters), Number.isFinite(size.private) ? `${percent(size.private / size.parameters)} of them belong to single agents` : "");
  if (run.timing.words) add("Speed", run.timing.words, `all seeds together; ${duration(run.timing.seconds)} of training${run.timing.compile > 0 ? `, ${duration(run.timing.compile)} of compiling` : ""}`);
}

const RUN_SECTIONS = [
  ["diversity", "How agents differ", diversitySection], ["spectrum", "Spectrum", spectrumSection], ["replay", "Replay", replaySection], ["field", "Play", fieldSection], ["footprint", "Footprint", footprintSection],
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
  const titles = { learning: "Learning", scores: "Final results", settings: "Compare settings", ...Object.fromEntries(RUN_SECTIONS.map(([id, title]) => [id, title])) };
  titles.missing = `What is missing (${DATA.missing.length})`;
  showContents(titles);
}

function showContents(titles) {
  byId("contents").replaceChildren(...Object.entries(titles).filter(([id]) => !byId(id).hidden).map(([id, text]) => make("a", { href: "#" + id, text })));
}

function chooser(section) {
  if (DATA.runs.length < 2) return;
  const picker = make("select", { id: "run-picker" }, ...DATA.runs.map((run, index) => make("option", { value: index, text: runName(run) })));
  picker.value = DATA.headline;
  picker.addEventListener("change", () => showRun(Number(picker.value)));
  section.hidden = false;
  section.append(make("h2", { text: "Inside one run" }), make("div", { class: "bar" }, make("label", { for: "run-picker", text: "Run" }), picker));
}

startTheme();
headlineFacts(byId("headline"));
for (const [id, build] of [["learning", learningSection], ["scores", scoresSection], ["settings", settingsSection], ["missing", missingSection]]) {
  const section = byId(id);
  section.hidden = false;
  section.hidden = !build(section);
}
chooser(byId("chooser"));
if (DATA.runs.length) showRun(DATA.headline);
else showContents({ missing: "What is missing" });
byId("foot").textContent = `Made by prism-marl ${DATA.version}. This file holds the whole page: it loads nothing from the network.`;
