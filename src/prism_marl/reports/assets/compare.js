// Final results: a table and who beats whom, task by task. And what is missing.

const CHANCE_RAMP = [["#c8641b", "#f3d3b4", "#ffffff", "#bcd7ee", "#1b66a8"], ["#c9702b", "#5a3a24", "#1b1f25", "#21415f", "#3f8fd2"]];

function scoresSection(section) {
  const runs = DATA.runs.filter((run) => run.scores);
  if (runs.length < 2) return false;
  const tasks = [...new Set(runs.map((run) => run.task))];
  const all = tasks.length <= 4;
  const stage = make("div", { class: "endpoints" });
  const picker = make("select", { "aria-label": "Task" }, all && tasks.length > 1 ? make("option", { value: -1, text: "all tasks" }) : null,
    ...tasks.map((task, index) => make("option", { value: index, text: task })));
  const redraw = () => {
    const shown = Number(picker.value) < 0 ? tasks : [tasks[Number(picker.value)]];
    stage.replaceChildren(...shown.flatMap((task) => taskScores(task, runs.filter((run) => run.task === task), tasks.length > 1)));
    const phone = stage.clientWidth < 560;
    for (const panel of stage.querySelectorAll(".square")) { // where a square of all pairs has no room, one row of it
      if (phone || panel.scrollWidth > panel.clientWidth) panel.replaceChildren(chanceList(DATA.improvement.find((one) => one.task === panel.dataset.task)));
    }
  };
  picker.addEventListener("change", redraw);
  section.append(heading("Final results", { finals: "scores", probabilities: "improvement" }), make("div", { class: "bar", hidden: tasks.length < 2 }, make("label", {}, "Task", picker)), stage,
    caption("Which method ends highest, and how sure is that?", `Numbers are interquartile means over seeds, with 95% bootstrap intervals in brackets. Final return: at the last step that all seeds of the run have reached. Best: the highest evaluation of each seed; it is too optimistic, because luck counts. Mean over training: the area under the curve divided by its length, so fast learners score high. The probabilities say how often a random seed of one method ends above a random seed of another; 50% is a coin toss. A probability is bold and coloured only if its 95% interval excludes 50% and both runs have at least ${DATA.fewest} seeds. A method is named the winner only if its interval lies above all others and all runs have at least ${DATA.fewest} seeds.`));
  figure(stage, redraw);
  return true;
}

function taskScores(task, members, named) {
  const matrix = DATA.improvement.find((one) => one.task === task);
  return [named ? make("h3", { class: "task", text: task }) : null,
    make("div", { class: "panel scroll", tabindex: 0, role: "region", "aria-label": "Final results on " + task }, scoreTable(members)),
    matrix ? make("div", { class: "panel scroll square", tabindex: 0, role: "region", "data-task": task, "aria-label": "Probability of improvement on " + task }, chanceTable(matrix)) : null,
  ].filter(Boolean);
}

function scoreTable(members) {
  const head = [["Method"], ["Final return", true], [""], ["Best", true], ["Mean over training", true], ["Seeds", true], ["Steps", true], ["Training time", true]];
  const sorted = [...members].sort((a, b) => b.scores.final[0] - a.scores.final[0]);
  const bounds = sorted.flatMap((run) => run.scores.final);
  const scale = [Math.min(...bounds), Math.max(...bounds)];
  return make("table", { class: "scores stacked", role: "table" },
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...head.map(([text, number]) => make("th", { text, scope: "col", role: "columnheader", class: number ? "num" : null })))),
    make("tbody", { role: "rowgroup" }, ...sorted.map((run) => scoreRow(run, scale))));
}

// Roles are said again because a phone shows rows as blocks, which would take a table its meaning.
function scoreRow(run, scale) {
  const span = scale[1] - scale[0];
  const cell = (label, ...children) => make("td", { class: "num", role: "cell", "data-label": label }, make("span", {}, ...children));
  const interval = (label, triple) => cell(label, fixed(triple[0], span) + " ",
    run.seeds > 1 ? make("small", { text: `[${fixed(triple[1], span)}, ${fixed(triple[2], span)}]` }) : null);
  const { final, best, area, steps } = run.scores;
  const few = run.seeds < DATA.fewest ? { class: "few", title: `Fewer than ${DATA.fewest} seeds: the interval is too narrow to be trusted` } : {};
  return make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader", title: run.label }, swatch(run), " " + run.label), interval("Final return", final),
    make("td", { class: "drawn", role: "cell" }, whisker(final, scale, shade(run.colour))), interval("Best", best), interval("Mean over training", area),
    cell("Seeds", make("span", { ...few, text: run.seeds < DATA.fewest ? `${run.seeds} (few)` : run.seeds })), cell("Steps", whole(steps)),
    cell("Training time", make("span", { text: duration(run.timing.seconds), title: run.timing.compile > 0 ? `and ${duration(run.timing.compile)} of compiling` : "" })));
}

function swatch(run) { return make("span", { class: "swatch", style: { background: shade(run.colour) } }); }

// A dot with its interval on the common scale of the task.
function whisker([value, low, high], [start, end], colour) {
  const at = (number) => 2 + 96 * ((number - start) / (end - start || 1)) + "%";
  return draw("svg", { class: "whisker", "aria-hidden": "true" },
    draw("line", { x1: "2%", x2: "98%", y1: 8, y2: 8, stroke: cssColour("--line") }),
    draw("line", { x1: at(low), x2: at(high), y1: 8, y2: 8, stroke: colour, "stroke-width": 3, "stroke-opacity": 0.5 }),
    draw("circle", { cx: at(value), cy: 8, r: 4, fill: colour }));
}

function chanceTable({ runs, table, sure, of }) {
  const members = runs.map((index) => DATA.runs[index]);
  const wide = members.length <= 10;
  const title = `Probability that a seed of the row ends above a seed of the column${of > members.length ? ` (the ${members.length} highest of ${of} runs)` : ""}`;
  const cell = (triple, row, column) => {
    if (!triple) return make("td", { class: "self" });
    const [chance, low, high] = triple;
    const many = members[row].seeds > 1 && members[column].seeds > 1;
    const words = `${members[row].label} against ${members[column].label}: ${percent(chance)}` + (many ? `, 95% interval ${percent(low)} to ${percent(high)}` : "");
    return make("td", { class: sure[row][column] ? "sure" : null, title: words, style: sure[row][column] ? chanceStyle(chance) : {} },
      Math.round(100 * chance) + "%", wide && many ? make("small", { text: `${Math.round(100 * low)}–${Math.round(100 * high)}` }) : null);
  };
  return make("table", { class: "chances" + (members.length > 6 ? " broad" : "") + (wide ? "" : " dense") }, make("caption", { text: title }),
    make("thead", {}, make("tr", {}, make("td"), ...members.map((run, place) => make("th", { scope: "col", title: run.label }, swatch(run), make("div", { text: wide ? run.label : place + 1 }))))),
    make("tbody", {}, ...table.map((line, row) => make("tr", {}, make("th", { scope: "row", title: members[row].label }, swatch(members[row]), ` ${wide ? "" : row + 1 + " "}${members[row].label}`),
      ...line.map((triple, column) => cell(triple, row, column))))));
}

// On a phone: one method against each of the others.
function chanceList({ runs, table, sure, of }) {
  const members = runs.map((index) => DATA.runs[index]);
  const picker = make("select", { "aria-label": "Method" }, ...members.map((run, row) => make("option", { value: row, text: run.label })));
  const title = make("p", { class: "caption", text: `How probable is it that a seed of this method ends above a seed of another?${of > members.length ? ` (The ${members.length} highest of ${of} runs.)` : ""}` });
  const list = make("ul", { class: "plain chance-list" });
  const redraw = () => {
    const row = Number(picker.value);
    list.replaceChildren(...members.flatMap((other, column) => {
      if (column === row) return [];
      const [chance, low, high] = table[row][column], settled = sure[row][column];
      const interval = members[row].seeds > 1 && other.seeds > 1 ? make("small", { text: ` [${Math.round(100 * low)}, ${Math.round(100 * high)}]` }) : null;
      return [make("li", {}, make("span", {}, swatch(other), " above " + other.label), make("span", { class: settled ? "chance sure" : "chance", style: settled ? chanceStyle(chance) : {} }, Math.round(100 * chance) + "%", interval))];
    }));
  };
  picker.addEventListener("change", redraw);
  redraw();
  return make("div", {}, title, make("div", { class: "bar" }, picker), list);
}

function chanceStyle(chance) {
  const background = rampColour(CHANCE_RAMP, chance);
  const [red, green, blue] = background.match(/\d+/g).map((part) => (part / 255) ** 2.2);
  return { background, color: 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff" }; // whichever is easier to read
}

function missingSection(section) {
  const rows = DATA.missing.map(({ what, who }) => {
    const whole = who.length === 1 && who[0] === "The comparison";
    if (whole) return make("li", { text: what });
    if (who.length <= 2) return make("li", {}, make("b", { text: who.join("; ") + ": " }), what);
    return make("li", {}, what + " ", make("details", {}, make("summary", { text: plural(who.length, "run") }), ...who.map((name) => make("div", { text: name }))));
  });
  section.append(heading("What is missing"),
    make("ul", { class: "notes" }, ...(rows.length ? rows : [make("li", { text: "Nothing is missing: all run folders are complete." })])));
  return true;
}
