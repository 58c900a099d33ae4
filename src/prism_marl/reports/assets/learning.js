// Learning curves of all runs, one chart per task, with a legend that hides and stresses methods.

function learningSection(section) {
  const runs = DATA.runs.filter((run) => Object.keys(run.curves).length);
  if (!runs.length) return false;
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))];
  const state = { metric: metrics[0], seeds: false, hidden: new Set(), key: lineKeys(runs) };
  const tasks = [...new Set(runs.map((run) => run.task))];
  const hosts = tasks.map(() => make("div", { class: "chart" }));
  const panels = tasks.map((task, index) => make("div", { class: "panel" }, make("h3", { text: task }), hosts[index]));
  const legend = make("div", { class: "legend", role: "group", "aria-label": "Show or hide a method" });
  const seeds = seedsBox((checked) => { state.seeds = checked; redraw(); }, runs);
  const choices = make("div", { class: "segments", role: "group", "aria-label": "Metric" });

  const redraw = () => {
    hosts.forEach((host, index) => lineChart(host, {
      series: runs.filter((run) => run.task === tasks[index] && !state.hidden.has(state.key(run)) && run.curves[state.metric])
        .map((run) => ({ name: run.label, key: state.key(run), colour: shade(run.colour), dash: run.dash, ...run.curves[state.metric], seeds: state.seeds ? singleSeeds(run.curves[state.metric]) : null })),
      height: tasks.length === 1 ? 380 : 230, xLabel: "environment steps", endLabels: tasks.length === 1 && runs.length <= 16,
      label: `${state.metric} over training on ${tasks[index]}; arrow keys read the values`,
    }));
    for (const button of choices.children) button.setAttribute("aria-pressed", button.textContent === state.metric);
    drawLegend(legend, runs, state, redraw, (key) => stress(section, key));
  };
  for (const metric of metrics) {
    choices.append(make("button", { type: "button", text: metric, onclick: () => { state.metric = metric; redraw(); } }));
  }
  section.append(heading("Learning", { "": "learning" }),
    make("div", { class: "bar" }, metrics.length > 1 ? choices : null, seeds), legend,
    make("div", { class: "multiples" + (tasks.length === 1 ? " one" : "") }, ...panels),
    caption("How well and how fast does each method learn?", "Each point is a greedy evaluation. The line is the interquartile mean over seeds (the mean of the middle half), the band its 95% bootstrap interval. Point at a curve, or focus it and press the arrow keys, to read values." + (runs.length > 1 ? " Where the bands of two methods overlap, these seeds do not show which one is better. Click a name to hide its curve." : "")));
  figure(hosts[0], redraw);
  return true;
}

// A legend entry stands for one line of every task; where that would be too many, for all lines of a method.
function lineKeys(runs) {
  const single = (run) => run.method + "/" + run.dash;
  return new Set(runs.map(single)).size > 16 ? (run) => run.method : single;
}

function stress(section, key) {
  for (const svg of section.querySelectorAll(".chart svg")) {
    svg.classList.toggle("dim", key !== null);
    for (const part of svg.querySelectorAll(".line")) part.classList.toggle("strong", part.dataset.line === key);
  }
}

function drawLegend(legend, runs, state, redraw, point) {
  const focused = [...legend.children].indexOf(document.activeElement);
  const seen = new Map();
  for (const run of runs) seen.set(state.key(run), [...(seen.get(state.key(run)) || []), run]);
  const same = (group) => group.every((run) => run.label === group[0].label) && state.key(group[0]) !== group[0].method;
  const entries = [...seen].map(([key, group]) => [key, group[0], same(group)]).map(([key, run, alike]) => make("button", {
    type: "button", "aria-pressed": String(!state.hidden.has(key)), "data-method": run.method,
    onclick: () => { if (!state.hidden.delete(key)) state.hidden.add(key); redraw(); },
    onpointerenter: () => point(key), onpointerleave: () => point(null),
  }, lineSample(shade(run.colour), run.dash), alike ? run.label : run.family + (run.dash && key !== run.method ? ` (${run.dash + 1})` : "")));
  const all = make("button", { type: "button", class: "all", text: "show all", hidden: !state.hidden.size, onclick: () => { state.hidden.clear(); redraw(); } });
  legend.replaceChildren(...entries, all);
  if (focused >= 0) (legend.children[focused].hidden ? legend.children[0] : legend.children[focused]).focus(); // keep the keyboard where it was
}
