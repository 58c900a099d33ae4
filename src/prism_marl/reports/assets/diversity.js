// How far agents differ: in what they do on the same observations, in their matrices, and in what they learn from.

function diversitySection(section, run) {
  const data = run.diversity;
  if (!data) return false;
  section.append(heading("How agents differ", { "": "diversity:" + DATA.runs.indexOf(run) }));
  const tables = data.tables && data.tables.agents.length > 1 ? data.tables : null;
  const chart = make("div", { class: "chart" }), keys = make("div", { class: "keys" });
  const behaviour = () => [
    ["snd", "agents of this run", shade(run.colour), 0], ["snd_by_matrices", "by their matrices alone", shade(run.colour), 2],
    ["snd_chance", "chance: separate fresh networks", cssColour("--muted"), 1],
  ].filter(([name]) => data.curves[name]).map(([key, name, colour, dash]) => ({ key, name, colour, dash, faint: key !== "snd", ...data.curves[key] }));
  const curve = make("div", { class: "panel" }, make("h3", { text: "System neural diversity" }), keys, chart,
    caption("How differently do agents act?", "The full line is the mean distance between what two agents would do on the same observation: 0 means that all act alike. Compare it with the dashed grey line, which is what separate networks with fresh random numbers differ by. The dotted line lets all agents act under one id: what is left comes from matrices of their own."));
  const pairs = tables ? pairPanel(tables) : null;
  section.append(make("div", { class: pairs ? "differ" : "" }, ...(pairs ? [pairs.node] : []), curve));
  figure(chart, () => {
    const series = behaviour();
    keys.replaceChildren(...series.map((one) => make("span", {}, lineSample(one.colour, one.dash), one.name)));
    const drawn = lineChart(chart, { series, height: 230, xLabel: "environment steps", floor: 0, label: "System neural diversity over training; arrow keys read values, Enter moves the table",
      onPick: (x) => pairs?.go(nearest(tables.steps, x)) });
    pairs?.follow(drawn);
  });
  const layers = [
    layerPanel(data, "private_share", "Private share of each layer", "Is sharing real?", "What changes in a layer's matrix when two agents swap places, as a share of its size: 0 means that they use the same matrix, 1 (chance) that the matrices have nothing in common.", [0, 1]),
    layerPanel(data, "gradient_cosine", "Do gradients agree?", "Does sharing hurt?", "The cosine between the gradients of two agents on the parameters they share: 1 means that they want the same change, 0 (chance) that they want unrelated ones, and below 0 that what helps one harms the other.", [-1, 1]),
  ].filter(Boolean);
  if (layers.length) section.append(make("div", { class: "multiples two" }, ...layers.map((one) => one.node)));
  for (const one of layers) figure(one.host, one.redraw);
  return true;
}

// One line for each layer.
function layerPanel(data, measure, title, lead, text, [floor, ceiling]) {
  const names = data.layers[measure].filter((layer) => data.curves[`${measure}.${layer}`]);
  if (!names.length) return null;
  const host = make("div", { class: "chart" }), keys = make("div", { class: "keys" });
  const node = make("div", { class: "panel" }, make("h3", { text: title }), keys, host, caption(lead, text));
  const redraw = () => {
    const series = names.map((layer, index) => ({ name: layer, colour: agentColour(index), dash: index >= 8 ? 1 : 0, faint: true, ...data.curves[`${measure}.${layer}`] }));
    keys.replaceChildren(...series.map((one) => make("span", {}, lineSample(one.colour, one.dash), one.name)));
    lineChart(host, { series, height: 190, xLabel: "environment steps", floor, ceiling, label: `${title}; arrow keys read values` });
  };
  return { node, host, redraw };
}

// The table of distances between every two agents, over training.
function pairPanel(tables) {
  const canvas = make("canvas", { role: "img", tabindex: 0 }), readout = make("span", { class: "readout" }), key = make("div", { class: "bar" });
  const number = tables.agents.length, top = Math.max(...tables.values.flat(2)), state = { frame: tables.steps.length - 1, chart: null };
  const at = (a, b) => tables.values[state.frame][a][b];
  const who = (index) => `agent ${tables.agents[index] + 1}`;
  const paint = () => paintDistances(canvas, number, at, top, tables.agents);
  const controls = player({
    count: tables.steps.length, start: state.frame, delay: 240, label: "Time of the table",
    onFrame: (frame) => {
      state.frame = frame;
      readout.replaceChildren("step ", make("b", { text: whole(tables.steps[frame]) }));
      let total = 0;
      for (let a = 0; a < number; a++) for (let b = 0; b < a; b++) total += at(a, b);
      canvas.setAttribute("aria-label", `How differently every two of ${number} agents act; ${short((2 * total) / (number * (number - 1)))} on average. Arrow keys read values.`);
      paint();
      state.chart?.setNow(tables.steps[frame]);
      return "step " + whole(tables.steps[frame]);
    },
  });
  readDistances(canvas, number, at, who);
  const node = make("div", { class: "panel" }, make("h3", { text: "Which agents differ?" }), canvas,
    make("div", { class: "bar" }, controls.button, controls.slider, readout), key,
    caption("How to read it.", "A dark cell is a pair of agents that act differently where they see the same; a pale cell is a pair that acts alike. Agents whose cells with each other are pale form a group that could share one policy."));
  figure(canvas, () => { key.replaceChildren(top ? make("span", { class: "ramp" }, "0", rampBar(APART_RAMP), short(top) + ", the furthest in this run") : make("span", { text: "All agents act alike at all times." })); controls.refresh(); });
  return { node, go: controls.go, follow: (chart) => { state.chart = chart; chart?.setNow(tables.steps[state.frame]); } };
}

const PAIR_ROOM = 26; // for the numbers of agents, left and above

function distanceCell(width, number) { return Math.min(64, (width - PAIR_ROOM) / number); }

function paintDistances(canvas, number, at, top, agents) {
  const room = Math.max(120, canvas.clientWidth || canvas.parentElement.clientWidth || 300), cell = distanceCell(room, number);
  const { pen } = surface(canvas, PAIR_ROOM + cell * number + 2);
  pen.textAlign = "center";
  for (let a = 0; a < number; a++) {
    pen.fillStyle = cssColour("--soft");
    if (cell >= 14) {
      pen.fillText(agents[a] + 1, PAIR_ROOM / 2, PAIR_ROOM + (a + 0.5) * cell);
      pen.fillText(agents[a] + 1, PAIR_ROOM + (a + 0.5) * cell, PAIR_ROOM / 2);
    }
    for (let b = 0; b < number; b++) {
      const share = top ? at(a, b) / top : 0;
      pen.fillStyle = a === b ? cssColour("--off") : rampColour(APART_RAMP, share);
      pen.fillRect(Math.round(PAIR_ROOM + b * cell), Math.round(PAIR_ROOM + a * cell), Math.ceil(cell) - 2, Math.ceil(cell) - 2);
      if (cell < 30 || a === b) continue;
      pen.fillStyle = isDark() ? (share > 0.7 ? "#1a1206" : "#f0e6da") : share > 0.55 ? "#fff" : "#3a2a1a";
      pen.fillText(twoDigits(at(a, b)), PAIR_ROOM + (b + 0.5) * cell - 1, PAIR_ROOM + (a + 0.5) * cell);
    }
  }
}

function readDistances(canvas, number, at, who) {
  const cursor = { a: Math.min(1, number - 1), b: 0 };
  const tell = (x, y) => showTip(x, y, make("div", { text: cursor.a === cursor.b ? who(cursor.a) : `${who(cursor.a)} and ${who(cursor.b)} act ${short(at(cursor.a, cursor.b))} apart` }));
  canvas.addEventListener("pointermove", (event) => {
    const rect = canvas.getBoundingClientRect(), cell = distanceCell(rect.width, number);
    const a = Math.floor((event.clientY - rect.top - PAIR_ROOM) / cell), b = Math.floor((event.clientX - rect.left - PAIR_ROOM) / cell);
    if (a < 0 || b < 0 || a >= number || b >= number) return hideTip();
    Object.assign(cursor, { a, b });
    return tell(event.clientX, event.clientY);
  });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") hideTip();
    if (!by) return;
    event.preventDefault();
    cursor.a = Math.max(0, Math.min(number - 1, cursor.a + by[0]));
    cursor.b = Math.max(0, Math.min(number - 1, cursor.b + by[1]));
    const rect = canvas.getBoundingClientRect(), cell = distanceCell(rect.width, number);
    tell(rect.left + PAIR_ROOM + (cursor.b + 0.5) * cell, rect.top + PAIR_ROOM + (cursor.a + 0.5) * cell);
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("blur", hideTip);
}
