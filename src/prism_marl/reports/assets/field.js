// The trained team at play: the visitor moves food and agents, and switches directions of the shared spectrum.

const COMPARED = 100; // fields in a comparison

function fieldSection(section, run) {
  if (!run.field) return false;
  const { game } = run.field, rules = GAMES[game.name], team = readTeam(run.field.policy), random = dice(Date.now());
  const [width, height] = rules.size(game);
  const board = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "The field; Tab reaches pieces, arrow keys move them", style: { maxHeight: "62vh" } });
  const facts = make("ul", { class: "plain" }), verdict = make("p", { class: "start", "aria-live": "polite" });
  const play = { state: rules.reset(game, random), memory: forgetful(team), next: null, gained: 0, over: false, timer: null };

  const think = () => { play.next = decide(team, rules.observe(game, play.state), play.memory); };
  const begin = () => {
    Object.assign(play, { state: rules.reset(game, random), memory: forgetful(team), gained: 0, over: false });
    show();
  };
  const step = () => {
    if (play.over) return begin();
    const { state, reward, over } = rules.step(game, play.state, play.next.map((one) => one.action));
    Object.assign(play, { state, memory: play.next, gained: play.gained + reward, over });
    return show();
  };
  const show = () => {
    think();
    paintField(board, game, play.state, { width, height, grid: true }, moved);
    const plan = play.next.map((one, agent) => fact(`agent ${agent + 1} ${play.over ? "would play" : "plays next"}`, rules.actions ? rules.actions[one.action] : String(one.action + 1)));
    facts.replaceChildren(fact("step", `${play.state.clock} of ${game.horizon}${play.over ? ", over" : ""}`), fact("return so far", short(play.gained)), ...plan);
  };
  const moved = (piece, cell, name) => {
    const allowed = rules.allows(game, play.state, piece, cell);
    if (allowed) { Object.assign(piece, cell); rules.moved(play.state); }
    show();
    if (name) [...board.querySelectorAll(".piece")].find((node) => node.getAttribute("aria-label") === name)?.focus();
    return allowed;
  };

  const button = make("button", { class: "main", type: "button", text: "Play", onclick: () => (play.timer ? stop() : start()) });
  const stop = () => { clearInterval(play.timer); play.timer = null; button.textContent = "Play"; };
  const start = () => {
    button.textContent = "Pause";
    play.timer = setInterval(() => { if (!button.isConnected) stop(); else if (!board.querySelector(".held")) step(); }, 350);
  };
  const plain = (text, onclick) => make("button", { type: "button", text, onclick });
  const side = make("div", {}, make("h3", { text: `The trained team, seed ${run.field.seed}` }),
    make("div", { class: "bar" }, button, plain("One step", () => { stop(); step(); }), plain("New field", () => { stop(); begin(); })), facts,
    caption("It plays here.", `The run's policy, computed in this page from its own matrices (rounded to half precision).${rules.hint?.(game) ?? ""}${team.spectra.length ? " Below, switch directions of the shared matrices off and see who needed them." : ""}`));
  section.append(heading("Play with the team"), make("div", { class: "split" }, make("div", { class: "board panel" }, board), side));
  if (team.spectra.length) section.append(switches(game, team, show, [plain(`Compare on ${COMPARED} fields`, () => compare(game, team, verdict)), verdict]));
  figure(board, show);
  return true;
}

// Draws the pieces; each can be dragged, or moved with arrow keys.
function paintField(board, game, state, size, moved) {
  paintBoard(board, size, { shapes: [] });
  const unit = Math.max(size.width, size.height) / 10;
  for (const { piece, name, label = piece.level, shape: [kind, across, colour, ring] } of GAMES[game.name].pieces(game, state)) {
    const node = draw("g", { class: "piece", tabindex: 0, role: "button", "aria-label": name }, ...paintShape([kind, piece.col + 0.5, piece.row + 0.5, across, colour, String(label), ring], unit));
    node.addEventListener("pointerdown", (event) => drag(event, board, node, piece, moved));
    node.addEventListener("keydown", (event) => {
      const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!by) return;
      event.preventDefault();
      const cell = { row: piece.row + by[0], col: piece.col + by[1] };
      if (cell.row >= 0 && cell.col >= 0 && cell.row < size.height && cell.col < size.width) moved(piece, cell, name);
    });
    board.append(node);
  }
}

function drag(event, board, node, piece, moved) {
  event.preventDefault();
  const { a, e, f } = board.getScreenCTM(); // one scale for both axes
  const place = (now) => ({ x: (now.clientX - e) / a, y: (now.clientY - f) / a });
  const from = place(event);
  node.setPointerCapture(event.pointerId);
  node.classList.add("held");
  node.onpointermove = (now) => node.setAttribute("transform", `translate(${place(now).x - from.x} ${place(now).y - from.y})`);
  node.onpointercancel = () => moved(piece, { row: piece.row, col: piece.col }, null);
  node.onpointerup = (now) => {
    node.onpointermove = null;
    const { x, y } = place(now), box = board.viewBox.baseVal;
    const inside = x >= 0 && y >= 0 && x < box.width && y < box.height;
    moved(piece, inside ? { row: Math.floor(y), col: Math.floor(x) } : { row: piece.row, col: piece.col }, null);
  };
}

// One square for each direction of each row of singular values: a click takes it from that row, or gives it back.
function switches(game, team, changed, comparison) {
  const common = team.spectra.filter((spectrum) => spectrum.common >= spectrum.s.shape[1]).map((spectrum) => spectrum.layer);
  const panel = make("div", { class: "panel switches" }), grids = team.spectra.filter((spectrum) => spectrum.common < spectrum.s.shape[1]).map((spectrum) => switchGrid(team, spectrum, () => repaint()));
  const repaint = () => { for (const grid of grids) grid.paint(); changed(); };
  const all = (to) => { masks?.reset(); for (const spectrum of team.spectra) to(spectrum); repaint(); };
  const masks = wardrobe(team, repaint), served = servedSentence(team), worth = make("div", { "aria-live": "polite" });
  const trained = () => all((spectrum) => spectrum.s.numbers.set(spectrum.trained));
  panel.append(make("div", { class: "bar" }, make("h3", { text: "Directions of the shared matrices" }),
    make("button", { type: "button", text: "As trained", onclick: trained }),
    make("button", { type: "button", text: "All own directions off", onclick: () => all(({ s, common }) => s.numbers.forEach((_, at) => { if (at % s.shape[1] >= common) s.numbers[at] = 0; })) })),
  served ? make("p", { class: "start", text: served }) : "", masks ? masks.bar : "",
  make("div", { class: "grids" }, ...grids.map((grid) => grid.node)),
  common.length ? make("p", { class: "caption", text: `In ${common.join(", ")} all directions are common.` }) : "",
  make("div", { class: "bar" }, ...(grids.length ? [make("button", { type: "button", text: "What is each direction worth?", onclick: () => measureDirections(game, team, worth, trained) })] : []), ...comparison), worth,
  caption("Who needs which direction?", "Each row is an agent, or all of them where they have the same numbers; each square a direction that is not common to all by design. A click on a square switches it for that row, with Shift for every row; with the keyboard, arrow keys and Enter. What nobody uses cannot be switched on."));
  repaint();
  return panel;
}

function switchGrid(team, spectrum, changed) {
  const { s, trained, common } = spectrum, [rows, rank] = s.shape, cell = 15, left = 62;
  const own = Array.from({ length: rank - common }, (_, k) => common + k);
  const size = (column) => Array.from({ length: rows }, (_, row) => trained[row * rank + column]).find((value) => value !== 0) || 0;
  const top = Math.max(...trained.map(Math.abs)) || 1;
  const picture = draw("svg", { viewBox: `0 0 ${left + cell * own.length} ${cell * rows}`, role: "group", "aria-label": `Directions of ${spectrum.layer}`, style: { maxWidth: left + cell * own.length + "px" } });
  const cells = [];
  const flip = (column, some) => {
    const on = s.numbers[some[0] * rank + column] === 0;
    for (const row of some) s.numbers[row * rank + column] = on ? size(column) : 0;
    changed();
  };
  const every = Array.from({ length: rows }, (_, row) => row);
  for (let row = 0; row < rows; row++) {
    const who = rows === 1 ? "all agents" : "agent " + team.identity.flatMap((one, agent) => (one === row ? [agent + 1] : [])).join(", ");
    picture.append(draw("text", { x: 0, y: (row + 0.7) * cell, "font-size": 11, class: "who", text: who }));
    own.forEach((column, at) => {
      const node = draw("rect", { x: left + at * cell, y: row * cell, width: cell - 2, height: cell - 2, rx: 2, role: "switch", tabindex: at || row ? -1 : 0,
        "aria-label": `${spectrum.layer}, direction ${column + 1}, ${who}`, "aria-disabled": size(column) === 0 });
      const rowsMeant = (event) => (event.shiftKey ? [row, ...every.filter((other) => other !== row)] : [row]);
      if (size(column)) node.addEventListener("click", (event) => flip(column, rowsMeant(event)));
      node.addEventListener("keydown", (event) => {
        const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); if (size(column)) flip(column, rowsMeant(event)); }
        if (!by) return;
        event.preventDefault();
        cells.find((one) => one.row === row + by[0] && one.at === at + by[1])?.node.focus();
      });
      cells.push({ node, row, at, column });
      picture.append(node);
    });
  }
  const paint = () => cells.forEach(({ node, row, column }) => {
    const value = Math.abs(s.numbers[row * rank + column]);
    node.setAttribute("aria-checked", String(value > 0));
    node.setAttribute("fill", value ? rampColour(SIZE_RAMP, value / top) : cssColour("--off"));
  });
  const node = make("div", { class: own.length > 24 ? "broad" : "" }, make("h4", { text: spectrum.layer }), picture);
  return { node, paint };
}

function compare(game, team, verdict) {
  verdict.textContent = "Playing …";
  setTimeout(() => {
    const seed = Date.now(), now = playEpisodes(game, team, COMPARED, seed), switched = team.spectra.map(({ s }) => s.numbers.slice());
    team.spectra.forEach(({ s, trained }) => s.numbers.set(trained));
    const before = playEpisodes(game, team, COMPARED, seed);
    team.spectra.forEach(({ s }, k) => s.numbers.set(switched[k]));
    verdict.textContent = `Mean return on ${COMPARED} random fields, the same for both: ${short(before)} as trained, ${short(now)} with the switches as they are.`;
  }, 20);
}
