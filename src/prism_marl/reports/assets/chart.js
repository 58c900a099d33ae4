// One line chart for the whole page: curves, bands, a cross-hair that reads values, arrow keys.

const DASHES = ["", "6 3", "2 2.5", "8 3 2 3"];

function niceTicks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index++) ticks.push(index * step);
  return ticks;
}

function extent(series, keys) {
  let low = Infinity, high = -Infinity;
  const count = (values) => {
    for (const value of values || []) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  };
  for (const one of series) for (const key of keys) {
    if (key === "seeds") (one.seeds || []).forEach(count);
    else count(one[key]);
  }
  return [low, high];
}

// The curves of single seeds: two bytes a number, between the lowest and the highest (page_curves.py).
function singleSeeds(curve) {
  const { count, low, high, bytes } = curve.seeds, text = atob(bytes), points = curve.x.length;
  const at = (index) => (text.charCodeAt(2 * index) + 256 * text.charCodeAt(2 * index + 1)) / 65534;
  return Array.from({ length: count }, (_, seed) => Array.from({ length: points }, (_, i) => {
    const share = at(seed * points + i);
    return low * (1 - share) + high * share;
  }));
}

// A box that adds the curves of single seeds to those of all, and says so where they are too many to draw.
function seedsBox(onChange, runs) {
  const box = make("input", { type: "checkbox", onchange: () => onChange(box.checked) });
  const many = runs.some((run) => run.seeds > DATA.single);
  return make("label", {}, box, many ? `single seeds (the first ${DATA.single} of a run)` : "single seeds");
}

// options: series [{name, colour, dash, x, y, low, high, seeds}], height, label, xLabel, now, onPick, endLabels, floor
function lineChart(host, options) {
  host.replaceChildren();
  const series = options.series.filter((one) => one.x.length);
  const width = Math.max(120, host.clientWidth), height = options.height;
  const [xLow, xTop] = extent(series, ["x"]);
  let [low, high] = extent(series, ["y", "low", "high", "seeds"]);
  if (!Number.isFinite(low)) {
    host.append(make("p", { class: "caption", text: "No curve is shown: none has this metric, or all are hidden." }));
    return null;
  }
  if (options.floor !== undefined) { low = Math.min(low, options.floor); high = Math.max(high, options.ceiling ?? high); }
  if (high - low < 1e-12) { const pad = Math.abs(high) * 0.1 || 0.5; low -= pad; high += pad; }
  const margin = (high - low) * 0.04;
  if (options.floor === undefined || low < options.floor) low -= margin;
  high += margin;
  const xHigh = xTop > xLow ? xTop : xLow + 1;
  const room = options.endLabels && width > 560 ? 30 + 7.3 * Math.max(...series.map((one) => Math.min(22, one.name.length))) : 12;
  const ticks = niceTicks(low, high, height / (height < 150 ? 32 : 48));
  const left = 12 + 6.2 * Math.max(...ticks.map((tick) => tickText(tick).length));
  const box = { left, right: width - room, top: 8, bottom: height - (options.xLabel ? 36 : 20) };
  const px = (x) => box.left + ((x - xLow) / (xHigh - xLow)) * (box.right - box.left);
  const py = (y) => box.bottom - ((y - low) / (high - low)) * (box.bottom - box.top);

  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": options.label });
  for (const tick of ticks) {
    svg.append(draw("line", { class: "gridline", x1: box.left, x2: box.right, y1: py(tick), y2: py(tick) }),
      draw("text", { x: box.left - 7, y: py(tick) + 4, "text-anchor": "end", text: tickText(tick) }));
  }
  const wanted = Math.max(3, Math.min(8, (box.right - box.left) / 90));
  for (const tick of niceTicks(xLow, xHigh, wanted)) {
    const anchor = px(tick) > width - 18 ? "end" : "middle"; // the last label must not leave the picture
    svg.append(draw("text", { x: anchor === "end" ? width : px(tick), y: box.bottom + 15, "text-anchor": anchor, text: short(tick) }));
  }
  svg.append(draw("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  if (options.xLabel) {
    svg.append(draw("text", { x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle", text: options.xLabel }));
  }
  for (const draws of [drawBand, drawLine]) {
    for (const one of series) {
      const group = draw("g", { class: "line", "data-line": one.key || one.name });
      draws(group, one, px, py);
      svg.append(group);
    }
  }
  if (room > 12) drawEndLabels(svg, series, box, py);
  const now = draw("line", { class: "now", y1: box.top, y2: box.bottom, visibility: "hidden" });
  svg.append(now);
  host.append(svg);
  addReading(svg, { series, box, px, py, xLow, xHigh, span: high - low, onPick: options.onPick });
  const setNow = (x) => {
    now.setAttribute("x1", px(x)); now.setAttribute("x2", px(x)); now.setAttribute("visibility", "visible");
  };
  if (options.now !== undefined) setNow(options.now);
  return { setNow };
}

function tickText(value) { return Math.abs(value) < 1e-12 ? "0" : short(value); }

// Runs of points without a gap, so that a missing value breaks the line instead of bending it.
function pieces(xs, ys) {
  const result = [[]];
  ys.forEach((y, index) => { if (y === null) result.push([]); else result.at(-1).push([xs[index], y]); });
  return result.filter((piece) => piece.length);
}

function trace(points, px, py) {
  return points.map(([x, y], index) => (index ? "L" : "M") + px(x).toFixed(1) + " " + py(y).toFixed(1)).join("");
}

function drawBand(svg, one, px, py) {
  if (!one.low || one.x.length < 2) return;
  const upper = one.x.map((x, i) => [x, one.high[i]]).filter((p) => p[1] !== null);
  const lower = one.x.map((x, i) => [x, one.low[i]]).filter((p) => p[1] !== null).reverse();
  if (!upper.length) return;
  const path = trace(upper, px, py) + trace(lower, px, py).replace("M", "L") + "Z";
  svg.append(draw("path", { d: path, fill: one.colour, "fill-opacity": (isDark() ? 0.16 : 0.12) * (one.faint ? 0.5 : 1) }));
}

function drawLine(svg, one, px, py) {
  for (const seed of one.seeds || []) {
    for (const piece of pieces(one.x, seed)) {
      svg.append(draw("path", { class: "seed", d: trace(piece, px, py), fill: "none", stroke: one.colour, "stroke-width": 1, "stroke-opacity": 0.45 }));
    }
  }
  for (const piece of pieces(one.x, one.y)) {
    if (piece.length === 1) svg.append(draw("circle", { cx: px(piece[0][0]), cy: py(piece[0][1]), r: 3.5, fill: one.colour }));
    svg.append(draw("path", {
      d: trace(piece, px, py), fill: "none", stroke: one.colour, "stroke-width": one.thin ? 1.5 : 2.1,
      "stroke-linejoin": "round", "stroke-dasharray": DASHES[(one.dash || 0) % DASHES.length] || null,
    }));
  }
}

// A short piece of a line as it is drawn in the chart, for legends.
function lineSample(colour, dash) {
  return draw("svg", { width: 22, height: 8, "aria-hidden": "true" }, draw("line", {
    x1: 0, x2: 22, y1: 4, y2: 4, stroke: colour, "stroke-width": 3, "stroke-dasharray": DASHES[dash % DASHES.length] || null,
  }));
}

// Names at the ends of the lines, pushed apart where they would overlap.
function drawEndLabels(svg, series, box, py) {
  const labels = series.map((one) => ({ one, y: py(one.y.findLast((value) => value !== null) ?? 0) })).sort((a, b) => a.y - b.y);
  const gap = 14;
  for (let i = 1; i < labels.length; i++) labels[i].y = Math.max(labels[i].y, labels[i - 1].y + gap);
  let limit = box.bottom;
  for (let i = labels.length - 1; i >= 0; i--) { labels[i].y = Math.min(labels[i].y, limit); limit = labels[i].y - gap; }
  for (const { one, y } of labels) {
    const name = one.name.length > 22 ? one.name.slice(0, 21) + "…" : one.name;
    svg.append(draw("g", { class: "line", "data-line": one.key || one.name },
      draw("line", { x1: box.right + 6, x2: box.right + 16, y1: y, y2: y, stroke: one.colour, "stroke-width": 3 }),
      draw("text", { class: "end", x: box.right + 20, y: y + 4, text: name })));
  }
}

function nearest(xs, x) {
  let best = 0;
  for (let i = 1; i < xs.length; i++) if (Math.abs(xs[i] - x) < Math.abs(xs[best] - x)) best = i;
  return best;
}

function addReading(svg, { series, box, px, py, xLow, xHigh, span, onPick }) {
  const hair = draw("line", { class: "hair", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const dots = draw("g");
  svg.append(hair, dots);
  // Runs evaluate at slightly different steps: the densest one leads, the others answer with their nearest point.
  const grid = series.reduce((most, one) => (one.x.length > most.length ? one.x : most), []);
  const reach = (1.01 * (xHigh - xLow)) / Math.max(1, grid.length - 1);
  let at = grid.length - 1;
  const read = (x, clientX, clientY) => {
    at = nearest(grid, x);
    const rows = [];
    dots.replaceChildren();
    for (const one of series) {
      const i = nearest(one.x, grid[at]);
      if (one.y[i] === null || Math.abs(one.x[i] - grid[at]) > reach) continue;
      rows.push({ one, y: one.y[i], low: one.low?.[i], high: one.high?.[i] });
      dots.append(draw("circle", { cx: px(one.x[i]), cy: py(one.y[i]), r: 3, fill: one.colour }));
    }
    rows.sort((a, b) => b.y - a.y);
    hair.setAttribute("x1", px(grid[at])); hair.setAttribute("x2", px(grid[at])); hair.setAttribute("visibility", "visible");
    const lines = rows.slice(0, 14).map(({ one, y, low: l, high: h }) => make("div", { class: "row" },
      make("span", { class: "swatch", style: { background: one.colour } }), make("span", { text: one.name }),
      make("span", { text: fixed(y, span) + " " }, l === undefined || l === null ? null : make("small", { text: `[${fixed(l, span)}, ${fixed(h, span)}]` }))));
    showTip(clientX, clientY, make("div", { text: "step " + whole(grid[at]) }), ...lines);
  };
  const clear = () => { hair.setAttribute("visibility", "hidden"); dots.replaceChildren(); hideTip(); };
  const toX = (event) => {
    const rect = svg.getBoundingClientRect();
    const inside = ((event.clientX - rect.left) / rect.width) * svg.viewBox.baseVal.width;
    return xLow + ((inside - box.left) / (box.right - box.left)) * (xHigh - xLow);
  };
  const place = (x) => {
    const rect = svg.getBoundingClientRect();
    read(x, rect.left + (px(x) / svg.viewBox.baseVal.width) * rect.width, rect.top + rect.height / 2);
  };
  svg.addEventListener("pointermove", (event) => read(toX(event), event.clientX, event.clientY));
  svg.addEventListener("pointerleave", clear);
  svg.addEventListener("blur", clear);
  svg.addEventListener("click", (event) => onPick?.(toX(event)));
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -grid.length, End: grid.length }[event.key];
    if (event.key === "Escape") clear();
    if (event.key === "Enter") onPick?.(grid[at]);
    if (by === undefined) return;
    event.preventDefault();
    place(grid[Math.max(0, Math.min(grid.length - 1, at + by))]);
  });
}
