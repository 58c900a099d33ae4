// Learning curves of all runs, and the table of end points.

function learningSection(section) {
  const runs = DATA.runs.filter((run) => Object.keys(run.curves).length);
  if (!runs.length) return false;
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))];
  const state = { metric: metrics[0], seeds: false, hidden: new Set() };
  const tasks = [...new Set(runs.map((run) => run.task))];
  const hosts = tasks.map(() => make("div", { class: "chart" }));
  const panels = tasks.map((task, index) => make("div", { class: "panel" }, make("h3", { text: task }), hosts[index]));
  const legend = make("div", { class: "legend", role: "group", "aria-label": "Show or hide a method" });
  const seedBox = make("input", { type: "checkbox" });
  seedBox.addEventListener("change", () => { state.seeds = seedBox.checked; redraw(); });
  const choices = make("div", { class: "segments", role: "group", "aria-label": "Metric" });

  const redraw = () => {
    hosts.forEach((host, index) => lineChart(host, {
      series: runs.filter((run) => run.task === tasks[index] && !state.hidden.has(lineKey(run)) && run.curves[state.metric])
        .map((run) => ({ name: run.label, colour: shade(run.colour), dash: run.dash, ...run.curves[state.metric], seeds: state.seeds ? run.curves[state.metric].seeds : null })),
      height: tasks.length === 1 ? 360 : 230, xLabel: "environment steps", endLabels: tasks.length === 1,
      label: `${state.metric} over training on ${tasks[index]}; arrow keys read values`,
    }));
    seedBox.disabled = state.metric !== "return";
    for (const button of choices.children) button.setAttribute("aria-pressed", button.textContent === state.metric);
    drawLegend(legend, runs, state, redraw);
  };
  for (const metric of metrics) {
    choices.append(make("button", { type: "button", text: metric, onclick: () => { state.metric = metric; redraw(); } }));
  }
  section.append(make("h2", { text: "Learning" }),
    make("div", { class: "bar" }, metrics.length > 1 ? choices : null, make("label", {}, seedBox, "single seeds"), make("span", { class: "push" }), legend),
    make("div", { class: "multiples" + (tasks.length === 1 ? " one" : "") }, ...panels),
    caption("How well and how fast.", "Line: interquartile mean over seeds of the greedy evaluation; band: 95% bootstrap interval. Look for bands that separate and stay apart; where they overlap, the seeds do not tell the methods apart. Click a name to hide its line."));
  figure(hosts[0], redraw);
  return true;
}

function lineKey(run) { return run.method + "/" + run.dash; }

function drawLegend(legend, runs, state, redraw) {
  const focused = [...legend.children].indexOf(document.activeElement);
  const seen = new Map();
  for (const run of runs) if (!seen.has(lineKey(run))) seen.set(lineKey(run), run);
  legend.replaceChildren(...[...seen].map(([key, run]) => make("button", {
    type: "button", "aria-pressed": String(!state.hidden.has(key)),
    onclick: () => { if (!state.hidden.delete(key)) state.hidden.add(key); redraw(); },
  }, lineSample(shade(run.colour), run.dash), run.label)));
  if (focused >= 0) legend.children[focused]?.focus(); // keep the keyboard where it was
}

function scoresSection(section) {
  const runs = DATA.runs.filter((run) => run.scores);
  if (runs.length < 2) return false;
  const against = runs.find((run) => run.scores.against)?.scores.against;
  const head = ["Method", "Seeds", "Final return", "", "Best", "Mean over training", against ? `Chance that ${against} is better` : null];
  const numeric = [false, true, true, false, true, true, true];
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...head.map((text, i) => (text === null ? null
    : make("th", { text, scope: "col", class: numeric[i] ? "num" : null }))))));
  const body = make("tbody");
  table.append(body);
  const redraw = () => body.replaceChildren(...scoreRows(runs, Boolean(against)));
  section.append(make("h2", { text: "End points" }), make("div", { class: "panel scroll" }, table),
    caption("Which method wins, and how sure.", "Interquartile mean with its 95% interval in brackets, drawn to scale beside it. The last column is the probability that a random seed of one method beats a random seed of the other: 50% is a coin toss, and an interval that reaches 50% is no proof."));
  figure(body, redraw);
  return true;
}

function scoreRows(runs, compare) {
  const rows = [];
  const tasks = [...new Set(runs.map((run) => run.task))];
  for (const task of tasks) {
    const members = runs.filter((run) => run.task === task).sort((a, b) => b.scores.final[0] - a.scores.final[0]);
    const bounds = members.flatMap((run) => run.scores.final);
    const scale = [Math.min(...bounds), Math.max(...bounds)];
    const span = scale[1] - scale[0];
    if (tasks.length > 1) rows.push(make("tr", { class: "task" }, make("td", { colspan: compare ? 7 : 6, text: task })));
    for (const run of members) rows.push(scoreRow(run, scale, span, compare));
  }
  return rows;
}

function scoreRow(run, scale, span, compare) {
  const cell = (triple) => make("td", { class: "num", text: fixed(triple[0], span) + " " },
    run.seeds > 1 ? make("small", { text: `[${fixed(triple[1], span)}, ${fixed(triple[2], span)}]` }) : null);
  const { final, best, area, beaten } = run.scores;
  return make("tr", {},
    make("td", {}, make("span", { class: "swatch", style: { background: shade(run.colour) } }), " " + run.label),
    make("td", { class: "num", text: run.seeds }), cell(final), make("td", {}, whisker(final, scale, shade(run.colour))),
    cell(best), cell(area),
    compare ? make("td", { class: "num", text: beaten ? percent(beaten[0]) + " " : "" }, beaten ? make("small", { text: `[${percent(beaten[1])}, ${percent(beaten[2])}]` }) : null) : null);
}

// A dot with its interval on the common scale of the task.
function whisker([value, low, high], [start, end], colour) {
  const at = (number) => 2 + 96 * ((number - start) / (end - start || 1)) + "%";
  return draw("svg", { class: "whisker", "aria-hidden": "true" },
    draw("line", { x1: "2%", x2: "98%", y1: 8, y2: 8, stroke: cssColour("--line") }),
    draw("line", { x1: at(low), x2: at(high), y1: 8, y2: 8, stroke: colour, "stroke-width": 3, "stroke-opacity": 0.5 }),
    draw("circle", { cx: at(value), cy: 8, r: 4, fill: colour }));
}
