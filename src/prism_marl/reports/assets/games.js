// The rules of games that the visitor may play with, as in envs/lbf.py and envs/roles.py; the tests compare them. The orchard has a file of its own.

const LOAD = 5, FOOD_DISTANCE = 2, MOVES = [[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1], [0, 0]];

const apart = (one, other) => Math.abs(one.row - other.row) + Math.abs(one.col - other.col);
const sameCell = (one, other) => one.row === other.row && one.col === other.col;

const GAMES = {
  lbf: {
    reset(game, random) {
      const cells = [];
      for (let row = 0; row < game.rows; row++) for (let col = 0; col < game.cols; col++) cells.splice(Math.floor(random() * (cells.length + 1)), 0, { row, col });
      const whole = (low, high) => low + Math.floor(random() * (high - low + 1));
      const players = cells.splice(0, game.players).map((cell) => ({ ...cell, level: whole(1, 2), loading: false }));
      const most = players.map((player) => player.level).sort().slice(0, 3).reduce((a, b) => a + b, 0);
      const foods = [];
      for (const cell of cells) {
        if (foods.length < game.foods && inner(game, cell) && foods.every((food) => apart(food, cell) > FOOD_DISTANCE)) foods.push(cell);
      }
      inOrder(foods);
      for (const food of foods) food.level = game.coop ? most : whole(1, most - Number(game.lighter));
      return { players, foods, spawned: foods.reduce((sum, food) => sum + food.level, 0), clock: 0 };
    },

    observe(game, state) {
      const left = state.foods.filter((food) => food.level > 0), all = game.sight === null;
      return state.players.map((self, agent) => {
        const top = all ? 0 : Math.max(self.row - game.sight, 0), side = all ? 0 : Math.max(self.col - game.sight, 0);
        const near = (food) => all || (Math.abs(food.row - self.row) <= game.sight && Math.abs(food.col - self.col) <= game.sight);
        const inside = ({ row, col }) => all || (row >= top && col >= side && row - top <= 2 * game.sight && col - side <= 2 * game.sight);
        const mates = [self, ...state.players.filter((_, index) => index !== agent)].filter(inside);
        const seen = (things, room) => Array.from({ length: room }, (_, k) => (things[k] ? [things[k].row - top, things[k].col - side, things[k].level] : [-1, -1, 0])).flat();
        return [...seen(left.filter(near), game.foods), ...seen(mates, game.places)];
      });
    },

    step(game, state, actions) {
      const targets = state.players.map((player, agent) => {
        const cell = { row: player.row + MOVES[actions[agent]][0], col: player.col + MOVES[actions[agent]][1] };
        const free = cell.row >= 0 && cell.row < game.rows && cell.col >= 0 && cell.col < game.cols && !state.foods.some((food) => food.level > 0 && sameCell(food, cell));
        return free ? cell : { row: player.row, col: player.col };
      });
      const beside = (food) => state.players.filter((player, agent) => actions[agent] === LOAD && food.level > 0 && apart(player, food) === 1);
      const loaders = state.foods.map(beside);
      const foods = state.foods.map((food, k) => ({ ...food, level: loaders[k].reduce((sum, one) => sum + one.level, 0) >= food.level ? 0 : food.level }));
      const players = state.players.map((player, agent) => {
        const clash = targets.some((target, other) => other !== agent && sameCell(target, targets[agent]));
        return { ...player, ...(clash ? {} : targets[agent]), loading: loaders.some((group) => group.includes(player)) };
      });
      const gained = state.foods.reduce((sum, food, k) => sum + food.level - foods[k].level, 0), clock = state.clock + 1;
      const cleared = foods.every((food) => food.level === 0);
      return { state: { ...state, players, foods, clock }, reward: gained / Math.max(state.spawned, 1), over: cleared || clock >= game.horizon };
    },

    // Where the visitor may put a piece: foods keep their distance, as the rules ask of them.
    allows(game, state, piece, cell) {
      const others = [...state.players, ...state.foods.filter((food) => food.level > 0)].filter((other) => other !== piece);
      if (others.some((other) => sameCell(other, cell))) return false;
      return state.players.includes(piece) || (inner(game, cell) && others.every((other) => state.players.includes(other) || apart(other, cell) > FOOD_DISTANCE));
    },

    pieces(game, state) {
      return [...state.foods.filter((food) => food.level > 0).map((piece) => ({ piece, name: `food of level ${piece.level}`, shape: ["square", 0.8, -1, false] })),
        ...state.players.map((piece, agent) => ({ piece, name: `agent ${agent + 1}, level ${piece.level}`, shape: ["disc", 0.8, agent, piece.loading] }))];
    },
    actions: ["stay", "north", "south", "west", "east", "load"],
    hint: () => " Drag food or agents to another cell and watch what the team does about it.",
    size: (game) => [game.cols, game.rows],
    moved: (state) => inOrder(state.foods),
  },

  roles: { // one step: every agent has to play its own index
    reset: (game) => ({ chosen: new Array(game.players).fill(null), clock: 0 }),
    observe: (game) => Array.from({ length: game.players }, () => [1]),
    step: (game, state, actions) => ({ state: { chosen: [...actions], clock: 1 }, reward: actions.filter((action, agent) => action === agent).length / game.players, over: true }),
    allows: () => false,
    pieces: (game, state) => state.chosen.flatMap((action, agent) => (action === null ? [] : [{ piece: { row: agent, col: action, level: action + 1 }, name: `agent ${agent + 1} plays ${action + 1}`, shape: ["disc", 0.8, agent, action === agent] }])),
    actions: null,
    size: (game) => [game.players, game.players],
    moved() {},
  },
};

function inner(game, { row, col }) { return row > 0 && col > 0 && row < game.rows - 1 && col < game.cols - 1; }
function inOrder(foods) { foods.sort((one, other) => one.row - other.row || one.col - other.col); }

// The return of greedy episodes from starts of one's own: the same for the same seed.
function playEpisodes(game, team, count, seed) {
  const rules = GAMES[game.name], random = dice(seed);
  let total = 0;
  for (let episode = 0; episode < count; episode++) {
    let state = rules.reset(game, random), memory = forgetful(team), over = false;
    while (!over) {
      memory = decide(team, rules.observe(game, state), memory);
      const next = rules.step(game, state, memory.map((one) => one.action));
      ({ state, over } = next);
      total += next.reward;
    }
  }
  return total / count;
}

function dice(seed) { // a multiplicative generator modulo 2^31 - 1: uniform in [0, 1)
  let value = (seed % 2147483646) + 1;
  return () => (value = (value * 48271) % 2147483647) / 2147483647;
}
