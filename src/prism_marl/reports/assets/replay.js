// Recorded episodes, drawn from scenes: discs, squares, crosses, circles and bars on a board.

const SIGNS = "green: targets; ring: acts on something"; // of scenes that have no legend

function replaySection(section, run) {
  if (!run.replays.length) return false;
  const picker = make("select", { "aria-label": "Episode" }, ...run.replays.map((replay, index) => make("option", { value: index, text: replay.title })));
  const stage = make("div");
  const open = () => {
    forgetFigures(stage);
    stage.replaceChildren(episode(run.replays[Number(picker.value)], run.replays.length > 1 ? picker : null));
  };
  picker.addEventListener("change", () => { open(); picker.focus(); });
  section.append(heading("Episode replay"), stage);
  open();
  return true;
}

function episode(replay, picker) {
  const board = draw("svg", { viewBox: `0 0 ${replay.width} ${replay.height}`, role: "img", tabindex: 0, style: { maxHeight: "62vh" } });
  const facts = make("ul", { class: "plain" });
  let current = 0;
  const controls = player({
    count: replay.frames.length, start: 0, delay: Math.max(50, Math.min(230, 20000 / replay.frames.length)), label: "Step of the episode",
    onFrame: (index) => {
      current = index;
      const frame = replay.frames[index];
      paintBoard(board, replay, frame);
      board.setAttribute("aria-label", `${frame.caption || "frame " + (index + 1)}; space plays, arrow keys step`);
      facts.replaceChildren(fact("frame", `${index + 1} of ${replay.frames.length}${frame.caption ? ": " + frame.caption : ""}`),
        ...frame.extra.map(([name, value]) => fact(name, short(value))), fact("return of the episode", short(replay.score)));
      return `frame ${index + 1}`;
    },
  });
  board.addEventListener("keydown", (event) => {
    const action = { " ": controls.toggle, ArrowRight: () => controls.step(1), ArrowLeft: () => controls.step(-1) }[event.key];
    if (action) { event.preventDefault(); action(); }
  });
  const host = make("div", { class: "board panel" }, board);
  const side = make("div", {}, make("h3", { text: replay.title }), picker ? make("div", { class: "bar" }, picker) : null,
    make("div", { class: "bar" }, controls.button,
      make("button", { type: "button", text: "−1", "aria-label": "One step back", onclick: () => controls.step(-1) }),
      make("button", { type: "button", text: "+1", "aria-label": "One step on", onclick: () => controls.step(1) }), controls.slider),
    facts, caption("What does the trained team do?", `A recorded episode in which every agent takes its best action. Every agent has its own colour (${replay.legend || SIGNS}). Watch whether the agents divide the work or all do the same.`));
  figure(host, () => controls.refresh(current));
  return make("div", { class: replay.grid ? "split" : "split large" }, host, side);
}

function fact(name, value) { return make("li", {}, make("span", { text: name }), make("b", { text: value })); }

function paintBoard(board, replay, frame) {
  const { width, height } = replay;
  const unit = Math.max(width, height) / 10;
  board.replaceChildren(draw("rect", { class: "ground", width, height }));
  if (replay.grid && width <= 64 && height <= 64) {
    let path = "";
    for (let x = 0; x <= width; x++) path += `M${x} 0V${height}`;
    for (let y = 0; y <= height; y++) path += `M0 ${y}H${width}`;
    board.append(draw("path", { class: "cell", d: path, "stroke-width": 0.025 * unit, fill: "none" }));
  }
  for (const shape of frame.shapes) board.append(...paintShape(shape, unit));
}

function paintShape([kind, x, y, size, colour, label, ring, dx, dy], unit) {
  const paint = agentColour(colour), half = size / 2, nodes = [];
  if (ring) {
    const reach = half * 1.25, line = { fill: "none", stroke: paint, "stroke-width": 0.06 * unit, "stroke-opacity": 0.75 };
    nodes.push(kind === "square" ? draw("rect", { x: x - reach, y: y - reach, width: 2 * reach, height: 2 * reach, rx: reach * 0.4, ...line })
      : draw("circle", { cx: x, cy: y, r: reach, ...line }));
  }
  if (kind === "bar") {
    nodes.push(draw("path", { d: `M${x} ${y}l${dx} ${dy}`, stroke: paint, "stroke-width": size, "stroke-linecap": "round" }));
  } else if (kind === "circle") {
    nodes.push(draw("circle", { cx: x, cy: y, r: half, fill: "none", stroke: paint, "stroke-width": 0.015 * unit, "stroke-opacity": 0.5 }));
  } else if (kind === "cross") {
    nodes.push(draw("path", { d: `M${x - half} ${y - half}l${size} ${size}m0 ${-size}l${-size} ${size}`, stroke: paint, "stroke-width": 0.09 * unit, "stroke-linecap": "round" }));
  } else if (kind === "square") {
    nodes.push(draw("rect", { x: x - half, y: y - half, width: size, height: size, rx: size * 0.22, fill: paint }));
  } else {
    nodes.push(draw("circle", { cx: x, cy: y, r: half, fill: paint }));
  }
  if (label && kind !== "cross" && kind !== "bar" && kind !== "circle") {
    nodes.push(draw("text", { x, y, "font-size": size * (label.length > 2 ? 0.34 : 0.52), fill: cssColour("--paper"), text: label }));
  }
  return nodes;
}
