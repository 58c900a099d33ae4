"use strict";
// Small tools that every figure uses. Text from runs reaches the page through textContent only.

const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const AGENT_COLOURS = [
  ["#0a63b0", "#5cb2f7"], ["#cf5500", "#ff9a52"], ["#00855f", "#3fcd9d"], ["#c14a86", "#f391bd"],
  ["#b98500", "#f0c24b"], ["#7446c0", "#b99cff"], ["#3aa0c0", "#7fdcf0"], ["#5b6b00", "#b9cc4d"],
];

function byId(id) { return document.getElementById(id); }

// make("p", {class: "caption", text: "..."}, child, ...) builds one element.
function make(tag, options = {}, ...children) { return fill(document.createElement(tag), options, children); }
function draw(tag, options = {}, ...children) { return fill(document.createElementNS(SVG, tag), options, children); }

function fill(node, options, children) {
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") node.textContent = value;
    else if (key === "style") Object.assign(node.style, value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// A section's title, with links to its figure as files where the page lies in a folder with them.
// figures: what each is called where there are several, and its key.
function heading(text, figures = {}) {
  const file = (key, name, kind) => make("a", { href: encodeURI(DATA.figures[key]) + "." + kind, text: kind.toUpperCase(), "aria-label": `${name || text} as ${kind.toUpperCase()}` });
  const links = Object.entries(figures).filter(([, key]) => DATA.figures[key]).map(([name, key]) =>
    make("span", {}, name ? name + " " : null, file(key, name, "png"), " ", file(key, name, "pdf")));
  return make("div", { class: "heading" }, make("h2", { text }), links.length ? make("span", { class: "files" }, ...links) : null);
}

function caption(lead, text) { return make("p", { class: "caption" }, make("b", { text: lead + " " }), text); }

function isDark() { return document.documentElement.dataset.theme === "dark"; }
function shade(pair) { return pair[isDark() ? 1 : 0]; }
function cssColour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function agentColour(index) {
  if (index >= 0) return shade(AGENT_COLOURS[index % AGENT_COLOURS.length]);
  return cssColour({ "-1": "--food", "-3": "--ink", "-4": "--shield" }[index] || "--muted"); // as in envs/scene.py
}

// Numbers: three significant digits are what five seeds can carry.
function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e12) return value.toExponential(1).replace("+", "");
  if (size >= 1e9) return trim(value / 1e9) + "G";
  if (size >= 1e6) return trim(value / 1e6) + "M";
  if (size >= 1e4) return trim(value / 1e3) + "k";
  if (size >= 1000) return value.toFixed(0);
  if (size > 0 && size < 1e-3) return value.toExponential(1);
  return trim(value);
}
function trim(value) { return String(Number(value.toPrecision(3))); }
function fixed(value, span) { // as many decimals as a range of this size needs
  if (value === null || !Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 1e4) return short(value);
  const decimals = Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(span || Math.abs(value) || 1))));
  return value.toFixed(decimals);
}
function whole(value) { return Number.isFinite(value) ? Math.round(value).toLocaleString("en") : "–"; }
function percent(value) {
  if (!Number.isFinite(value)) return "–";
  return value > 0 && value < 0.1 ? (100 * value).toFixed(1) + "%" : Math.round(100 * value) + "%";
}
function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 90) return seconds.toFixed(0) + " s";
  if (seconds < 5400) return (seconds / 60).toFixed(0) + " min";
  return (seconds / 3600).toFixed(1) + " h";
}
// A run as the page calls it; its task only where there are several.
const ONE_TASK = new Set(DATA.runs.map((run) => run.task)).size < 2;
function runName(run) { return ONE_TASK ? run.label : `${run.label} on ${run.task}`; }
function plural(count, word) { return count + " " + word + (count === 1 ? "" : "s"); }

// Figures redraw when their width or the theme changes.
const redraws = new Map();
const watcher = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const figure = redraws.get(target);
    if (figure && contentRect.width && figure.width !== contentRect.width) {
      figure.width = contentRect.width;
      figure.redraw();
    }
  }
});
function figure(host, redraw) {
  redraws.set(host, { redraw, width: host.clientWidth });
  watcher.observe(host);
  redraw();
}
function forgetFigures(section) {
  for (const host of [...redraws.keys()]) {
    if (section.contains(host)) { redraws.delete(host); watcher.unobserve(host); }
  }
}
function redrawAll() { for (const { redraw } of redraws.values()) redraw(); }

const tip = byId("tip");
function showTip(x, y, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - width - 14 : x + 16;
  tip.style.left = Math.max(6, Math.min(left, innerWidth - width - 6)) + "px";
  tip.style.top = Math.max(6, Math.min(y - height / 2, innerHeight - height - 6)) + "px";
}
function hideTip() { tip.hidden = true; }
addEventListener("scroll", hideTip, { passive: true });

function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("prism-marl-theme"); } catch { /* a page from a file may have no storage */ }
  const button = byId("theme");
  const apply = () => {
    const dark = chosen ? chosen === "dark" : system.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", dark ? "Switch to the light theme" : "Switch to the dark theme");
    redrawAll();
  };
  button.addEventListener("click", () => {
    chosen = isDark() ? "light" : "dark";
    try { localStorage.setItem("prism-marl-theme", chosen); } catch { /* the choice lasts as long as the page */ }
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

// A play button, a slider and its arrow keys: shared by the spectrum explorer and the replay player.
function player({ count, start, delay, onFrame, label }) {
  let frame = start, timer = null;
  const button = make("button", { class: "main", type: "button", text: "Play" });
  const slider = make("input", { type: "range", min: 0, max: count - 1, value: start, "aria-label": label });
  const go = (next) => {
    frame = Math.max(0, Math.min(count - 1, next));
    slider.value = frame;
    slider.setAttribute("aria-valuetext", onFrame(frame));
  };
  const stop = () => { clearInterval(timer); timer = null; button.textContent = "Play"; };
  const play = () => {
    if (frame >= count - 1) go(0);
    button.textContent = "Pause";
    timer = setInterval(() => {
      if (!button.isConnected || frame >= count - 1) stop(); else go(frame + 1);
    }, delay);
  };
  button.addEventListener("click", () => (timer ? stop() : play()));
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  const step = (by) => { stop(); go(frame + by); };
  return { button, slider, go: (next) => { stop(); go(next); }, step, refresh: () => go(frame), toggle: () => button.click() };
}
