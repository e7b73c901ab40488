// One cell through a whole run: the probability of each of its symbols at each step, as dark as it is likely.

import { stream } from "./api.js";
import { make } from "./controls.js";
import { body } from "./setting.js";
import { chance, place, sideName } from "./words.js";

/** Asks the server for the same run with all probabilities, once; kept with the run as bytes. */
export function probabilities(run, models) {
  run.probabilities ??= ask(run, models).catch((error) => { run.probabilities = null; throw error; });
  return run.probabilities;
}

async function ask(run, models) {
  const sides = [[], []];
  const asked = { ...body(run.setting, models), probabilities: true };
  for await (const [name, data] of stream("/api/trajectory", asked)) {
    if (name === "frame") sides[data.side].push(Uint8Array.from(data.probabilities.flat(), (p) => Math.round(255 * p)));
  }
  run.chances = sides;
  return sides;
}

/** The panel of one side: a picture of symbols against steps, and a line that says what it shows. */
export function cellPanel(run, side, cell, chances) {
  const { card } = run, symbols = card.letters.length, steps = chances.length, row = 16;
  const canvas = make("canvas", { width: steps, height: symbols * row, className: "heat" }), context = canvas.getContext("2d");
  const ink = getComputedStyle(document.documentElement);
  context.fillStyle = ink.getPropertyValue("--heat") || "#174f92";
  chances.forEach((frame, step) => {
    for (let s = 0; s < symbols; s++) {
      context.globalAlpha = frame[cell * symbols + s] / 255;
      context.fillRect(step, s * row, 1, row - 1);
    }
  });
  const last = chances.at(-1), leader = (frame) => { let best = 0; for (let s = 1; s < symbols; s++) if (frame[cell * symbols + s] > frame[cell * symbols + best]) best = s; return best; };
  const end = leader(last), turns = chances.filter((frame, i) => i && leader(frame) !== leader(chances[i - 1])).length;
  const words = `${place(card, cell)} ends as ${card.letters[end]} at ${chance(last[cell * symbols + end] / 255)}; it changed its mind ${turns} ${turns === 1 ? "time" : "times"}.`;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", words);
  const names = make("ol", { className: "heat-names", ariaHidden: "true" }, ...Array.from(card.letters, (text) => make("li", { textContent: text })));
  return make("div", { className: "lane" }, make("h3", { textContent: sideName(run.setting, side) }),
    make("div", { className: "heat-frame" }, names, canvas), make("p", { className: "figures", textContent: words }));
}
