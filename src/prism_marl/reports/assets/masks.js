// Masks in the page's field: who acts with whose mask, what each direction is worth to whom, and how masks began.

const MEASURED = 16; // fields for each direction
const SHOWN = 8; // directions in the list of the most valuable

// The rows of singular values that agents use: none where all agents have the same ones.
function maskRows(team) { return Math.max(1, ...team.spectra.map(({ s }) => s.shape[0])); }

// Own directions of a layer that some agent uses, with the rows that do.
function ownDirections(team) {
  return team.spectra.flatMap((spectrum) => {
    const [rows, rank] = spectrum.s.shape, found = [];
    for (let column = spectrum.common; column < rank; column++) {
      const users = Array.from({ length: rows }, (_, row) => row).filter((row) => spectrum.trained[row * rank + column] !== 0);
      found.push({ spectrum, column, users });
    }
    return found;
  });
}

// How many own directions serve all agents, none, or which of them alone.
function servedSentence(team) {
  const rows = maskRows(team), own = ownDirections(team);
  if (rows < 2 || !own.length) return "";
  const wide = own.filter(({ spectrum }) => spectrum.s.shape[0] === rows), parted = wide.filter(({ users }) => users.length && users.length < rows);
  const counts = new Map();
  for (const { users } of parted) counts.set(users.map((row) => row + 1).join(" and "), (counts.get(users.map((row) => row + 1).join(" and ")) || 0) + 1);
  const told = [...counts].sort((one, other) => one[0].length - other[0].length || (one[0] < other[0] ? -1 : 1)).map(([who, count]) => `${count} ${count === 1 ? "serves" : "serve"} ${who.includes("and") ? `agents ${who}` : `agent ${who} alone`}`);
  const none = own.filter(({ users }) => !users.length).length;
  return `Of ${own.length} own directions ${parted.length} are on for some agents and off for others: ${told.join(", ") || "none"}. ${own.length - parted.length - none} serve all and ${none} nobody.`;
}

// A choice for each agent: whose mask it acts with. Biases and ids stay, so only singular values change hands.
function wardrobe(team, changed) {
  const rows = maskRows(team);
  if (rows < 2 || rows !== team.agents || team.identity.some((one, agent) => one !== agent) || rows > 16) return null;
  const wear = (agent, whose) => {
    for (const { s, trained } of team.spectra) if (s.shape[0] > 1) s.numbers.set(trained.subarray(whose * s.shape[1], (whose + 1) * s.shape[1]), agent * s.shape[1]);
  };
  const selects = Array.from({ length: rows }, (_, agent) => {
    const select = make("select", { "aria-label": `Mask of agent ${agent + 1}` }, ...Array.from({ length: rows }, (_, whose) => make("option", { value: whose, text: `mask ${whose + 1}` })));
    select.value = agent;
    select.addEventListener("change", () => { wear(agent, Number(select.value)); changed(); });
    return select;
  });
  const put = (whose) => { selects.forEach((select, agent) => { select.value = whose(agent); wear(agent, whose(agent)); }); changed(); };
  const reset = () => selects.forEach((select, agent) => { select.value = agent; });
  const bar = make("div", { class: "bar", "data-what": "wardrobe" }, ...selects.map((select, agent) => make("label", {}, `agent ${agent + 1} acts with`, select)),
    make("button", { type: "button", text: "Pass masks on", title: "Every agent gets the mask of the next one", onclick: () => put((agent) => (agent + 1) % rows) }),
    make("button", { type: "button", text: "One mask for all", title: "All agents get the first one's mask, so that they act alike", onclick: () => put(() => 0) }));
  return { bar, reset };
}

// What an own direction is worth to whom: the return that the team loses without it, on the same fields. Directions that
// some agents use and others do not, if there are any.
function measureDirections(game, team, host, restore) {
  const own = ownDirections(team), parted = own.filter(({ spectrum, users }) => users.length < spectrum.s.shape[0]);
  const seed = 1, cases = (parted.length ? parted : own).flatMap(({ spectrum, column, users }) => users.map((row) => ({ spectrum, column, row, users })));
  restore();
  const whole = playEpisodes(game, team, MEASURED, seed), found = [];
  const next = (at) => {
    if (!host.isConnected) return;
    if (at === cases.length) { restore(); showWorth(team, host, whole, found); return; }
    const { spectrum, column, row } = cases[at], place = row * spectrum.s.shape[1] + column;
    spectrum.s.numbers[place] = 0;
    found.push({ ...cases[at], loss: whole - playEpisodes(game, team, MEASURED, seed) });
    spectrum.s.numbers[place] = spectrum.trained[place];
    if (at % 4 === 0) host.replaceChildren(make("p", { class: "start", text: `Measuring: ${at + 1} of ${cases.length} …` }));
    setTimeout(() => next(at + 1), 0);
  };
  next(0);
}

function showWorth(team, host, whole, found) {
  const parted = found.some(({ spectrum, users }) => users.length < spectrum.s.shape[0]);
  const rows = maskRows(team), name = (row, spectrum) => (spectrum.s.shape[0] === 1 ? "all agents" : `agent ${row + 1}`);
  const top = [...found].sort((one, other) => other.loss - one.loss).slice(0, SHOWN);
  host.replaceChildren(
    make("p", { class: "start", text: `Return ${short(whole)} on ${MEASURED} fields with all masks as trained. One direction${parted ? " that not all agents use" : ""} is taken from one agent; the largest losses:` }),
    make("ul", { class: "plain" }, ...top.map(({ spectrum, column, row, users, loss }) => make("li", {},
      make("span", {}, make("i", { class: "swatch", style: { background: agentColour(row) } }), ` ${spectrum.layer}, direction ${column + 1}, ${name(row, spectrum)}${rows > 1 && users.length < spectrum.s.shape[0] ? ` (${users.length === 1 ? "its alone" : "also of agent " + users.filter((one) => one !== row).map((one) => one + 1).join(", ")})` : ""}`),
      make("b", { text: `${short(whole)} → ${short(whole - loss)}` })))));
}
