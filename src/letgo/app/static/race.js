// Many seeds, two sides: how often each ends in a valid board, with the interval as it shrinks. A race owns its lanes.

import { el } from "./svg.js";

const percent = (share) => `${Math.round(100 * share)}%`;

function makeLane(name, labels, watch) {
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
  const buttons = new Map(labels.map(([key, label]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.disabled = true;
    button.setAttribute("aria-label", `${label}: not yet run`);
    dots.append(button);
    return [key, { button, label }];
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
      const { button, label } = buttons.get(result.number ?? result.seed);
      button.disabled = false;
      button.className = result.valid ? "good" : "bad";
      button.textContent = result.valid ? "✓" : "✕";
      button.title = `${label}: ${result.valid ? "valid" : "broken"}; click to watch`;
      button.setAttribute("aria-label", button.title);
      button.addEventListener("click", () => watch(result));
    },
  };
}

export class Race {
  /** `key` is the setting that this race belongs to; a click on a result calls `watch` with it. */
  constructor(key, names, { seed, count, vary }, watch) {
    Object.assign(this, { key, names, seed, count, vary });
    const labels = Array.from({ length: count }, (_, i) => (vary === "puzzles" ? [i, `puzzle ${i + 1}`] : [(seed + i) % 2 ** 32, `seed ${(seed + i) % 2 ** 32}`]));
    this.lanes = names.map((name) => makeLane(name, labels, watch));
    this.standing = names.map(() => null); // the last result of each side
    this.share = 0;
    this.words = "";
    this.state = "waiting"; // then racing, done or stopped
    this.stream = null;
  }

  get results() { return this.standing.reduce((sum, result) => sum + (result?.n ?? 0), 0); }

  take(name, data) {
    if (name === "start") this.state = "racing";
    if (name === "result") {
      this.lanes[data.side].add(data);
      this.standing[data.side] = data;
    }
    if (name === "progress") { this.share = data.done / data.total; this.words = `${this.results} of ${this.names.length * this.count} boards`; }
    if (name === "done") { this.state = "done"; this.share = 1; this.words = `${this.results} boards, all done.`; }
  }

  /** 'valid from 7 of 20 seeds', once a side has results. */
  told(side) {
    const result = this.standing[side], unit = this.vary === "puzzles" ? "puzzles" : "seeds";
    return result ? `${this.vary === "puzzles" ? "solves" : "solves it from"} ${result.wins} of ${result.n} ${unit}` : "";
  }
}
