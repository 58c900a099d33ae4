// The rules of the orchard, as in envs/orchard.py; the tests compare them.

GAMES.orchard = {
  reset(game, random) {
    const cells = [];
    for (let row = 0; row < game.rows; row++) for (let col = 0; col < game.cols; col++) cells.splice(Math.floor(random() * (cells.length + 1)), 0, { row, col });
    const players = cells.splice(0, game.players).map((cell) => ({ ...cell, picking: false }));
    const foods = cells.splice(0, game.players * game.fruits).map((cell, at) => ({ ...cell, kind: Math.floor(at / game.fruits), fate: 0 }));
    return { players, foods, clock: 0 };
  },

  observe(game, state) { // of each kind the nearest first: rows down, columns right, 1; zeros where there is none
    return state.players.map((self) => Array.from({ length: game.players }, (_, kind) => {
      const left = state.foods.filter((food) => food.kind === kind && !food.fate);
      const near = left.map((food, at) => [apart(food, self), at, food]).sort((one, other) => one[0] - other[0] || one[1] - other[1]);
      return Array.from({ length: game.fruits }, (_, k) => (near[k] ? [near[k][2].row - self.row, near[k][2].col - self.col, 1] : [0, 0, 0])).flat();
    }).flat());
  },

  step(game, state, actions) {
    const within = (value, size) => Math.max(0, Math.min(size - 1, value));
    const targets = state.players.map((player, agent) => ({
      row: within(player.row + MOVES[actions[agent]][0], game.rows), col: within(player.col + MOVES[actions[agent]][1], game.cols),
    }));
    const comers = state.foods.map((food) => targets.flatMap((cell, agent) => (!food.fate && sameCell(food, cell) ? [agent] : [])));
    const right = (food, agent) => game.anyone || food.kind === agent;
    const foods = state.foods.map((food, k) => ({ ...food, fate: comers[k].length === 1 ? (right(food, comers[k][0]) ? 1 : 2) : food.fate }));
    const players = state.players.map((player, agent) => {
      const k = comers.findIndex((some) => some.includes(agent)), crowded = k >= 0 && comers[k].length > 1;
      return { ...(crowded ? { row: player.row, col: player.col } : targets[agent]), picking: k >= 0 && !crowded && right(state.foods[k], agent) };
    });
    const gained = foods.filter((food, k) => food.fate === 1 && !state.foods[k].fate).length, clock = state.clock + 1;
    return { state: { ...state, players, foods, clock }, reward: gained / foods.length, over: foods.every((food) => food.fate) || clock >= game.horizon };
  },

  allows(game, state, piece, cell) { // an agent may stand with others, but nobody on fruit that is there
    const others = [...(state.players.includes(piece) ? [] : state.players), ...state.foods.filter((food) => !food.fate)].filter((other) => other !== piece);
    return !others.some((other) => sameCell(other, cell));
  },

  pieces(game, state) {
    const fruit = (piece) => ({ piece, label: piece.fate ? "" : piece.kind + 1, name: piece.fate ? `spoiled fruit ${piece.kind + 1}` : `fruit for agent ${piece.kind + 1}`, shape: piece.fate ? ["cross", 0.4, -2, false] : ["square", 0.56, piece.kind, false] });
    return [...state.foods.filter((food) => food.fate !== 1).map(fruit),
      ...state.players.map((piece, agent) => ({ piece, label: agent + 1, name: `agent ${agent + 1}`, shape: ["disc", 0.84, agent, piece.picking] }))];
  },
  actions: ["stay", "north", "south", "west", "east"],
  hint: (game) => (game.anyone ? " Everybody can pick everything." : ` Each agent can pick fruit of its own colour and spoils any other that it steps on. All see alike, so a team that cannot tell who is who earns ${short(1 / game.players)} at most.`) + " Drag fruit or agents to another cell and watch what the team does about it.",
  size: (game) => [game.cols, game.rows],
  moved() {},
};
