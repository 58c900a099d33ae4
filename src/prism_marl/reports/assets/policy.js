// A team's policy in the browser: what policies/policy.py computes, from the same arrays in half precision.

function halves(text) { // base64 of IEEE 754 half precision, little endian
  const bytes = decode(text), out = new Float32Array(bytes.length / 2);
  for (let k = 0; k < out.length; k++) {
    const bits = bytes[2 * k] | (bytes[2 * k + 1] << 8), power = (bits >> 10) & 31, part = bits & 1023;
    out[k] = (bits >> 15 ? -1 : 1) * (power ? 2 ** (power - 15) * (1 + part / 1024) : 2 ** -14 * (part / 1024));
  }
  return out;
}

// arrays: name -> {shape, numbers}. Singular values are copied, because the visitor switches them.
function readTeam(policy) {
  const arrays = Object.fromEntries(Object.entries(policy.arrays).map(([name, { shape, bytes }]) => [name, { shape, numbers: halves(bytes) }]));
  const layers = policy.network.flatMap((step) => (step === "gru" ? ["input", "hidden"] : [step]));
  const spectra = layers.filter((layer) => arrays[layer + ".s"]).map((layer) => {
    const s = arrays[layer + ".s"];
    return { layer, s, trained: s.numbers.slice(), common: policy.common[layer] ?? 0 };
  });
  return { ...policy, arrays, spectra, scale: Number(policy.scale) };
}

function rowOf(team, name, agent) { // an agent's row of a table: the only one where all have the same
  const { shape, numbers } = team.arrays[name], size = shape.slice(1).reduce((a, b) => a * b, 1);
  const row = shape[0] === 1 ? 0 : team.identity[agent];
  return numbers.subarray(row * size, (row + 1) * size);
}

function times(x, matrix, outputs) { // x [i] times a matrix [i, o]
  const out = new Float64Array(outputs);
  for (let i = 0; i < x.length; i++) if (x[i]) for (let o = 0; o < outputs; o++) out[o] += x[i] * matrix[i * outputs + o];
  return out;
}

function linear(team, name, x, agent) {
  const bias = rowOf(team, name + ".bias", agent);
  let out;
  if (team.arrays[name + ".s"]) {
    const s = rowOf(team, name + ".s", agent), low = times(x, team.arrays[name + ".V"].numbers, s.length);
    out = times(low.map((value, k) => value * s[k]), team.arrays[name + ".U"].numbers, bias.length);
  } else {
    out = times(x, rowOf(team, name + ".weight", agent), bias.length);
  }
  return out.map((value, k) => value + bias[k]);
}

function gru(team, x, hidden, agent) {
  const size = hidden.length, a = linear(team, "input", x, agent), b = linear(team, "hidden", hidden, agent);
  const gate = (k) => 1 / (1 + Math.exp(-(a[k] + b[k]))), mask = team.arrays["gate.mask"] ? rowOf(team, "gate.mask", agent) : null;
  return hidden.map((old, k) => {
    const update = gate(size + k), fresh = Math.tanh(a[2 * size + k] + gate(k) * b[2 * size + k]);
    return ((1 - update) * fresh + update * old) * (mask ? mask[k] : 1);
  });
}

function encode(team, obs, last, agent) {
  const id = Array.from({ length: team.ids }, (_, k) => Number(k === agent));
  const x = [...obs.map((value) => value * team.scale), ...(team.lastAction ? last : []), ...id];
  if (!team.standardise) return x;
  const mean = x.reduce((a, b) => a + b, 0) / x.length;
  const deviation = Math.sqrt(x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length) || 1;
  return x.map((value) => (value - mean) / deviation);
}

function forgetful(team) { // what agents remember at the start: nothing
  return Array.from({ length: team.agents }, () => ({ hidden: new Float64Array(team.hidden), last: new Array(team.actions).fill(0) }));
}

// Action values [agents][actions], and the memory after the greedy action; every action is legal in these games.
function decide(team, observations, memory) {
  return observations.map((obs, agent) => {
    let x = encode(team, obs, memory[agent].last, agent), hidden = memory[agent].hidden;
    for (const step of team.network) {
      if (step === "relu") x = x.map((value) => Math.max(0, value));
      else if (step === "tanh") x = x.map(Math.tanh);
      else if (step === "gru") x = hidden = gru(team, x, hidden, agent);
      else x = linear(team, step, x, agent);
    }
    const values = Array.from(x), action = values.indexOf(Math.max(...values));
    return { values, action, hidden, last: values.map((_, k) => Number(k === action)) };
  });
}
