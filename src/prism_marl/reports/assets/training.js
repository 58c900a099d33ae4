// What the optimiser did in one run: losses, regularisers and gradient norms.

function trainingSection(section, run) {
  const names = Object.keys(run.training);
  if (!names.length) return false;
  const state = { seeds: false }, hosts = names.map(() => make("div", { class: "chart" }));
  const redraw = (host, name) => lineChart(host, {
    series: [{ name, colour: shade(run.colour), thin: true, ...run.training[name], seeds: state.seeds ? singleSeeds(run.training[name]) : null }],
    height: 128, label: `${name} over training; arrow keys read the values`,
  });
  const seeds = seedsBox((checked) => { state.seeds = checked; hosts.forEach((host, index) => redraw(host, names[index])); }, [run]);
  section.append(heading("Training signals", { "": "training:" + DATA.runs.indexOf(run) }), make("div", { class: "bar" }, seeds),
    make("div", { class: "multiples small" }, ...names.map((name, index) => make("div", { class: "panel" }, make("h3", { text: name.replaceAll("_", " ") }), hosts[index]))),
    caption("Did training stay healthy?", "The line is the median over seeds, the band reaches from the lowest seed to the highest. In a healthy run the temporal-difference loss settles, the orthogonality term stays near zero (so the shared singular vectors stay orthonormal), and the gradient norm has no spikes."));
  hosts.forEach((host, index) => figure(host, () => redraw(host, names[index])));
  return true;
}
