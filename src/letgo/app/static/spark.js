// Under each board: how many cells break a rule, step by step, and where the proposal was valid.

import { el } from "./svg.js";

const HEIGHT = 40, STRIP = 6;

export function makeSpark(holder) {
  const svg = el("svg", { viewBox: `0 0 200 ${HEIGHT + STRIP + 4}`, preserveAspectRatio: "none", role: "img" });
  const area = el("path", { class: "area" }, svg), curve = el("path", { class: "curve" }, svg);
  el("path", { class: "base", d: `M0 ${HEIGHT}H200` }, svg);
  const strip = el("g", {}, svg), head = el("path", { class: "head" }, svg);
  holder.replaceChildren(svg);

  function draw(frames, steps, view, highest) {
    const key = view === "p" ? "pcount" : "xcount", x = (step) => ((200 * step) / steps).toFixed(2);
    const points = frames.map((f) => `${x(f.step)} ${(HEIGHT - ((HEIGHT - 3) * f[key]) / highest).toFixed(2)}`);
    curve.setAttribute("d", points.length ? "M" + points.join("L") : "");
    area.setAttribute("d", points.length ? `M${x(frames[0].step)} ${HEIGHT}L${points.join("L")}L${x(frames.at(-1).step)} ${HEIGHT}Z` : "");
    strip.replaceChildren();
    let start = null;
    frames.forEach((f, i) => {
      if (f.valid && start === null) start = f.step - 1;
      if (start !== null && (!f.valid || i === frames.length - 1)) {
        const end = f.valid ? f.step : f.step - 1;
        el("rect", { class: "ok", x: x(start), y: HEIGHT + 3, width: ((200 * (end - start)) / steps).toFixed(2), height: STRIP }, strip);
        start = null;
      }
    });
    const valid = frames.filter((f) => f.valid).length, last = frames.at(-1);
    svg.setAttribute("aria-label", last
      ? `Cells that break a rule: ${frames[0][key]} at first, ${last[key]} at step ${last.step}. The proposal was valid in ${valid} of ${frames.length} steps.`
      : "No steps yet.");
  }
  const point = (step, steps) => head.setAttribute("d", `M${(200 * step) / steps} 0V${HEIGHT + STRIP + 4}`);
  return { draw, point };
}
