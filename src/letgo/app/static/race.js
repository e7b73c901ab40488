// Many seeds, two rules: how often each ends in a valid board, with the interval as it shrinks.

import { stream } from "./api.js";
import { titleOf } from "./setting.js";
import { el } from "./svg.js";

const percent = (share) => `${Math.round(100 * share)}%`;

function makeLane(name, seeds, watch) {
  const root = document.createElement("div");
  root.className = "lane";
  const title = document.createElement("h3");
  title.textContent = name;
  const rate = document.createElement("div");
  rate.className = "rate";
  const svg = el("svg", { viewBox: "0 0 100 22", preserveAspectRatio: "none", role: "img", "aria-label": "no result yet" });
  const interval = el("rect", { class: "interval", x: 0, y: 0, width: 100, height: 22 }, svg);
  const value = el("rect", { class: "value", x: 0, y: 0, width: 0, height: 22 }, svg);
  rate.append(svg);
  const figures = document.createElement("p");
  figures.className = "figures";
  figures.textContent = "no result yet";
  const dots = document.createElement("div");
  dots.className = "dots";
  const buttons = new Map(seeds.map((seed) => {
    const button = document.createElement("button");
    button.type = "button";
    button.disabled = true;
    button.setAttribute("aria-label", `seed ${seed}: not yet run`);
    button.addEventListener("click", () => watch(seed));
    dots.append(button);
    return [seed, button];
  }));
  root.append(title, rate, figures, dots);
  return {
    root,
    add(result) {
      const words = `${result.wins} of ${result.n} valid: ${percent(result.value)}, 95% interval ${percent(result.low)} to ${percent(result.high)}`;
      interval.setAttribute("x", 100 * result.low);
      interval.setAttribute("width", 100 * (result.high - result.low));
      value.setAttribute("x", Math.min(98.8, 100 * result.value));
      value.setAttribute("width", 1.2);
      svg.setAttribute("aria-label", words);
      figures.textContent = words;
      const button = buttons.get(result.seed);
      button.disabled = false;
      button.className = result.valid ? "good" : "bad";
      button.textContent = result.valid ? "✓" : "✕";
      button.title = `seed ${result.seed}: ${result.valid ? "valid" : "broken"}; click to watch`;
      button.setAttribute("aria-label", button.title);
    },
  };
}

/** Runs to the end, or until `signal` aborts. Returns a line for the reader. */
export async function race(holder, body, signal, watch, progress) {
  const seeds = Array.from({ length: body.count }, (_, i) => (body.seed + i) % 2 ** 32);
  const lanes = body.rules.map(({ rule }) => makeLane(titleOf(rule), seeds, watch));
  holder.replaceChildren(...lanes.map((lane) => lane.root));
  let results = 0;
  progress(0, "Waiting for a place …");
  for await (const [name, data] of stream("/api/race", body, signal)) {
    if (name === "result") {
      lanes[data.side].add(data);
      results += 1;
    }
    if (name === "progress") progress(data.done / data.total, `${results} of ${2 * body.count} boards`);
  }
  progress(1, `${results} boards, all done.`);
}
