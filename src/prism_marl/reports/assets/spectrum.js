// The spectrum explorer: every agent's masked singular values, and how far the masks have moved apart.

const SIZE_RAMP = [["#a9d3df", "#69b0c6", "#2f80b2", "#284b96", "#241a5c"], ["#1d3350", "#22577f", "#2f8aa0", "#74c69d", "#f3f0a1"]];
const APART_RAMP = [["#fdf6ee", "#fbd9b0", "#f2a65e", "#d8661c", "#8f2f06"], ["#1a1d22", "#4a2c18", "#8f4513", "#d9781f", "#ffd08a"]];

function rampColour(ramp, share) {
  const stops = shade(ramp).map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const place = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const index = Math.min(stops.length - 2, Math.floor(place));
  const mixed = stops[index].map((part, i) => Math.round(part + (stops[index + 1][i] - part) * (place - index)));
  return `rgb(${mixed.join(",")})`;
}
function rampBar(ramp) { return make("i", { style: { background: `linear-gradient(90deg, ${shade(ramp).join(",")})` } }); }

function decode(text) { return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)); }

function spectrumSection(section, run) {
  const spectra = run.spectra;
  if (!spectra || !spectra.steps.length) return false;
  const layers = spectra.layers.map((layer) => ({ ...layer, cells: decode(layer.bytes), seeds: spectra.seeds, word: spectra.word }));
  const state = { frame: spectra.steps.length - 1, seed: 0, measure: "masks" };
  const readout = make("span", { class: "readout" });
  const views = layers.map((layer) => layerView(layer, state));
  const chartHost = make("div", { class: "chart" });
  const keys = make("div", { class: "keys" });
  let chart = null;
  const controls = player({
    count: spectra.steps.length, start: state.frame, delay: 140, label: "Training time",
    onFrame: (frame) => {
      state.frame = frame;
      readout.replaceChildren("step ", make("b", { text: whole(spectra.steps[frame]) }));
      for (const view of views) view.paint();
      chart?.setNow(spectra.steps[frame]);
      return "step " + whole(spectra.steps[frame]);
    },
  });
  const seeds = make("select", { "aria-label": "Seed" }, ...Array.from({ length: spectra.seeds }, (_, i) => make("option", { value: i, text: "seed " + i })));
  seeds.addEventListener("change", () => { state.seed = Number(seeds.value); controls.refresh(); });
  const measures = make("select", { "aria-label": "What the squares show" }, make("option", { value: "masks", text: "squares: share of masks that differ" }), make("option", { value: "values", text: "squares: distance of singular values" }));
  measures.addEventListener("change", () => { state.measure = measures.value; paintKey(key, state); controls.refresh(); });
  const key = make("div", { class: "bar" });
  section.append(heading("Spectrum explorer", Object.fromEntries(layers.map((layer) => [layer.name, `spectrum:${DATA.runs.indexOf(run)}:${layer.name}`]))),
    make("div", { class: "bar sticky" }, controls.button, controls.slider, readout, spectra.seeds > 1 ? seeds : null, measures),
    ...(spectra.start ? [make("p", { class: "start", text: spectra.start })] : []),
    make("div", { class: "panel" }, key, make("div", { class: "layers" }, ...views.map((view) => view.node))),
    caption("Which agent uses which direction?", "Each row is an agent (or a role, where all agents of a role have the same mask), each column a singular direction of the layer. The colour is the size of the singular value; an empty cell is a direction that is switched off for this row. Directions left of the gap are common: they are on for everyone. Right of the gap, look for columns that one row keeps and another drops. The small square compares every two rows: the percentage of own directions on which their masks differ, or the L1 distance between their masked singular values. Point at a cell, or focus a heat map and press the arrow keys, to read values."),
    make("div", { class: "panel", style: { marginTop: "18px" } }, make("h3", { text: `Share of own directions on which the masks of two ${spectra.word}s differ` }), keys, chartHost),
    caption("How do the masks change during training?", `One line per layer: the share of own directions on which two ${spectra.word}s differ, as a mean over all pairs and all seeds; the band reaches from the lowest seed to the highest. While a line is at zero, everyone uses the whole layer alike. A line above zero does not say why the masks differ: the sentence above the heat maps says how many differences only follow the random start. Click the chart to show the heat maps of that step.`));
  figure(chartHost, () => {
    paintKey(key, state);
    keys.replaceChildren(...layers.map((layer, index) => make("span", {}, lineSample(agentColour(index + 4), index), layer.name)));
    chart = lineChart(chartHost, {
      series: layers.map((layer, index) => ({ name: layer.name, colour: agentColour(index + 4), x: spectra.steps, ...layer.apart, dash: index % 4, faint: true })),
      height: 210, xLabel: "environment steps", endLabels: true, floor: 0, label: "Mean pairwise mask distance per layer; arrow keys read values, Enter moves the explorer",
      onPick: (x) => controls.go(nearest(spectra.steps, x)),
    });
    controls.refresh();
  });
  return true;
}

function paintKey(key, state) {
  key.replaceChildren(
    make("span", { class: "ramp" }, make("i", { class: "off" }), "off", rampBar(SIZE_RAMP), "singular value, small to large"),
    make("span", { class: "ramp push" }, state.measure === "masks" ? "masks are equal" : "values are equal", rampBar(APART_RAMP), state.measure === "masks" ? "all own directions differ" : "largest distance in this layer"));
}

function layerView(layer, state) {
  const heat = make("canvas", { role: "img", tabindex: 0 }), pair = make("canvas", { role: "img" });
  const own = layer.rank - layer.common;
  const title = make("span"), count = make("span");
  const node = make("div", { class: "layer" },
    make("div", {}, make("h3", { text: layer.name }, make("span", { text: `${layer.rank} directions: ${layer.common} common to all, ${own} own ones of each ${layer.word}` })), heat),
    make("div", { class: "pair" }, make("h3", {}, title, count), pair));
  const at = (agent, direction, frame = state.frame) => layer.cells[((frame * layer.seeds + state.seed) * layer.agents + agent) * layer.rank + direction];
  const measure = () => pairMeasure(layer, at, state.measure);
  const paint = () => {
    paintHeat(heat, layer, at);
    const chosen = measure(), mean = paintPairs(pair, layer, chosen);
    title.textContent = chosen.title;
    count.textContent = chosen.text(mean);
    heat.setAttribute("aria-label", `Masked singular values of ${layer.name}, ${plural(layer.agents, layer.word)}; arrow keys read values`);
    pair.setAttribute("aria-label", `${layer.name}: ${chosen.title} ${chosen.text(mean)} on average over pairs of ${layer.word}s`);
  };
  readHeat(heat, layer, at);
  readPairs(pair, layer, measure);
  return { node, paint };
}

// How two agents are compared: by their masks, or by what the masks leave of the singular values.
function pairMeasure(layer, at, name) {
  const own = layer.rank - layer.common;
  if (name === "masks") {
    const between = (a, b) => {
      let differ = 0;
      for (let d = layer.common; d < layer.rank; d++) differ += (at(a, d) === 0) !== (at(b, d) === 0);
      return own ? differ / own : 0;
    };
    return { title: "masks differ ", between, top: 1, text: percent, label: (value) => Math.round(100 * value), words: (value) => `differ on ${percent(value)} of ${own} directions` };
  }
  const size = (code) => (code ? ((code - 1) / 254) * layer.top : 0);
  const between = (a, b, frame) => {
    let total = 0;
    for (let d = 0; d < layer.rank; d++) total += Math.abs(size(at(a, d, frame)) - size(at(b, d, frame)));
    return total;
  };
  layer.farthest ??= farthest(layer, between);
  return { title: "L1 distance ", between, top: layer.farthest || 1, text: short, label: twoDigits, words: (value) => `are ${short(value)} apart (L1 of masked singular values)` };
}

function twoDigits(value) { // what a small cell has room for
  return value >= 10 ? String(Math.round(value)) : value >= 1 ? value.toFixed(1) : value.toFixed(2).replace(/^0/, "");
}

// The colour scale of a layer must not move with the slider: its end is the largest distance of all times.
function farthest(layer, between) {
  let most = 0;
  const frames = layer.cells.length / (layer.seeds * layer.agents * layer.rank);
  for (let frame = 0; frame < frames; frame++) for (let a = 1; a < layer.agents; a++) for (let b = 0; b < a; b++) most = Math.max(most, between(a, b, frame));
  return most;
}

function surface(canvas, height) {
  const width = Math.max(120, canvas.clientWidth || canvas.parentElement.clientWidth || 300), ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = height + "px";
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px " + cssColour("--sans");
  pen.textBaseline = "middle";
  return { pen, width };
}

// The square stands beside the heat map, row by row, so both use the same height.
function rowHeight(layer) { return Math.max(5, Math.min(26, 190 / layer.agents)); }

// Where the cells of a heat map lie; drawing and pointing must agree on it.
function heatPlan(layer, width) {
  const row = rowHeight(layer), left = 56, right = 42;
  const gap = layer.common > 0 && layer.common < layer.rank ? 8 : 0;
  const cell = (width - left - right - gap) / layer.rank;
  return { row, left, right, gap, cell, x: (d) => left + d * cell + (d >= layer.common ? gap : 0) };
}

function paintHeat(canvas, layer, at) {
  const row = rowHeight(layer);
  const { pen, width } = surface(canvas, layer.agents * row + 4);
  const plan = heatPlan(layer, width);
  const line = plan.cell >= 5 ? 1 : 0, between = row >= 10 ? 2 : 0;
  const off = cssColour("--off"), mark = cssColour("--off-mark"), ink = cssColour("--soft");
  for (let agent = 0; agent < layer.agents; agent++) {
    const y = 2 + agent * row;
    let on = 0;
    for (let d = 0; d < layer.rank; d++) {
      const code = at(agent, d), x = Math.round(plan.x(d)), end = Math.round(plan.x(d) + plan.cell);
      on += code > 0;
      pen.fillStyle = code ? rampColour(SIZE_RAMP, (code - 1) / 254) : off;
      pen.fillRect(x, y, Math.max(1, end - x - line), row - between);
      if (!code && plan.cell >= 4 && row >= 10) {
        pen.fillStyle = mark;
        pen.fillRect((x + end - line) / 2 - 1, y + (row - between) / 2 - 1, 2, 2);
      }
    }
    if (row < 10) continue;
    pen.fillStyle = agentColour(agent);
    pen.fillRect(0, y + (row - between) / 2 - 4, 8, 8);
    pen.fillStyle = ink;
    pen.textAlign = "left";
    pen.fillText(layer.word + " " + (agent + 1), 12, y + (row - between) / 2 + 0.5, plan.left - 14);
    pen.textAlign = "right";
    pen.fillText(on + " on", width, y + (row - between) / 2 + 0.5);
  }
}

function readHeat(canvas, layer, at) {
  const cursor = { agent: 0, direction: 0 };
  const tell = (x, y) => {
    const { agent, direction } = cursor, code = at(agent, direction);
    const size = code ? "|s| = " + short(((code - 1) / 254) * layer.top) : "switched off";
    showTip(x, y, make("div", { text: `${layer.name}, ${layer.word} ${agent + 1}` }),
      make("div", { text: `direction ${direction + 1}, ${direction < layer.common ? "common" : "own"}: ${size}` }));
  };
  canvas.addEventListener("pointermove", (event) => {
    const rect = canvas.getBoundingClientRect(), plan = heatPlan(layer, rect.width);
    const agent = Math.floor((event.clientY - rect.top - 2) / plan.row);
    const x = event.clientX - rect.left;
    let direction = Math.floor((x - plan.left) / plan.cell);
    if (direction >= layer.common) direction = Math.max(layer.common, Math.floor((x - plan.left - plan.gap) / plan.cell));
    if (agent < 0 || agent >= layer.agents || direction < 0 || direction >= layer.rank) return hideTip();
    Object.assign(cursor, { agent, direction });
    return tell(event.clientX, event.clientY);
  });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") hideTip();
    if (!by) return;
    event.preventDefault();
    cursor.agent = Math.max(0, Math.min(layer.agents - 1, cursor.agent + by[0]));
    cursor.direction = Math.max(0, Math.min(layer.rank - 1, cursor.direction + by[1]));
    const rect = canvas.getBoundingClientRect(), plan = heatPlan(layer, rect.width);
    tell(rect.left + plan.x(cursor.direction) + plan.cell / 2, rect.top + 2 + (cursor.agent + 0.5) * plan.row);
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("blur", hideTip);
}

function pairCell(layer, width) { return Math.min(rowHeight(layer), width / layer.agents); }

function paintPairs(canvas, layer, measure) {
  const { pen, width } = surface(canvas, layer.agents * rowHeight(layer) + 4);
  const cell = pairCell(layer, width);
  let total = 0;
  for (let a = 0; a < layer.agents; a++) for (let b = 0; b < layer.agents; b++) {
    const value = a === b ? 0 : measure.between(a, b), apart = value / measure.top;
    total += value;
    pen.fillStyle = a === b ? cssColour("--off") : rampColour(APART_RAMP, apart);
    pen.fillRect(Math.round(b * cell), 2 + Math.round(a * cell), Math.ceil(cell) - 2, Math.ceil(cell) - 2);
    if (cell < 24) continue;
    pen.textAlign = "center";
    pen.fillStyle = a === b ? agentColour(a) : isDark() ? (apart > 0.7 ? "#1a1206" : "#f0e6da") : apart > 0.55 ? "#fff" : "#3a2a1a";
    pen.fillText(a === b ? "■" : measure.label(value), (b + 0.5) * cell - 1, (a + 0.5) * cell + 2);
  }
  return layer.agents > 1 ? total / (layer.agents * (layer.agents - 1)) : 0;
}

function readPairs(canvas, layer, measure) {
  canvas.addEventListener("pointermove", (event) => {
    const rect = canvas.getBoundingClientRect(), cell = pairCell(layer, rect.width);
    const a = Math.floor((event.clientY - rect.top - 2) / cell), b = Math.floor((event.clientX - rect.left) / cell);
    if (a < 0 || b < 0 || a >= layer.agents || b >= layer.agents || a === b) return hideTip();
    return showTip(event.clientX, event.clientY, make("div", { text: `${layer.word}s ${a + 1} and ${b + 1} ${measure().words(measure().between(a, b))}` }));
  });
  canvas.addEventListener("pointerleave", hideTip);
}
