// Under each board: how many cells break a rule, step by step; where the proposal was valid; and changes of mind.

import { el } from "./svg.js";

const HEIGHT = 40, STRIP = 6, MINDS = 22, TOTAL = HEIGHT + STRIP + MINDS + 10;

export function makeSpark(holder) {
  const svg = el("svg", { viewBox: `0 0 200 ${TOTAL}`, preserveAspectRatio: "none", role: "img" });
  const area = el("path", { class: "area" }, svg), curve = el("path", { class: "curve" }, svg);
  el("path", { class: "base", d: `M0 ${HEIGHT}H200M0 ${TOTAL - 1}H200` }, svg);
  const strip = el("g", {}, svg), minds = el("path", { class: "minds" }, svg), head = el("path", { class: "head" }, svg);
  holder.replaceChildren(svg);

  /** `name` is the count that is drawn, on a scale up to `highest`; `most` is the scale of the changes of mind. */
  function draw(frames, steps, name, highest, most) {
    const x = (step) => ((200 * step) / steps).toFixed(2);
    const points = frames.map((f) => `${x(f.step)} ${(HEIGHT - ((HEIGHT - 3) * f[name]) / highest).toFixed(2)}`);
    curve.setAttribute("d", points.length ? "M" + points.join("L") : "");
    area.setAttribute("d", points.length ? `M${x(frames[0].step)} ${HEIGHT}L${points.join("L")}L${x(frames.at(-1).step)} ${HEIGHT}Z` : "");
    minds.setAttribute("d", frames.filter((f) => f.changes).map((f) => `M${x(f.step)} ${TOTAL - 1}v${(-MINDS * f.changes / most).toFixed(2)}`).join(""));
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
      ? `Cells that break a rule: ${frames[0][name]} at first, ${last[name]} at step ${last.step}. The proposal was valid in ${valid} of ${frames.length} steps and changed its mind ${last.minds} times.`
      : "No steps yet.");
  }
  const point = (step, steps) => head.setAttribute("d", `M${(200 * step) / steps} 0V${TOTAL}`);
  return { draw, point };
}
