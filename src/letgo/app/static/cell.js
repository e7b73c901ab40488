// One cell through a whole run: the probability of each of its symbols at each step, as dark as it is likely.

import { stream } from "./api.js";
import { make } from "./controls.js";
import { dress, el } from "./svg.js";
import { body } from "./setting.js";
import { chance, letter, place, sideName } from "./words.js";

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

const INKS = 16; // shades

/** The panel of one side: a picture of symbols against steps, and a line that says what it shows. */
export function cellPanel(run, side, cell, chances) {
  const { card } = run, symbols = card.letters.length, steps = chances.length, names = Array.from(card.letters, (_, s) => letter(card, s));
  const picture = el("svg", { viewBox: `0 0 ${steps} ${symbols}`, preserveAspectRatio: "none", role: "img" });
  const inks = Array.from({ length: INKS + 1 }, () => []);
  chances.forEach((frame, step) => {
    for (let s = 0; s < symbols; s++) inks[Math.round((INKS * frame[cell * symbols + s]) / 255)].push(`M${step} ${s}h1v.94h-1z`);
  });
  inks.forEach((path, ink) => { if (ink && path.length) el("path", { d: path.join(""), opacity: ink / INKS }, picture); });
  dress(picture, "heat");
  const last = chances.at(-1), leader = (frame) => { let best = 0; for (let s = 1; s < symbols; s++) if (frame[cell * symbols + s] > frame[cell * symbols + best]) best = s; return best; };
  const end = leader(last), turns = chances.filter((frame, i) => i && leader(frame) !== leader(chances[i - 1])).length;
  const words = `${place(card, cell, run.cells)} ends as ${names[end]} at ${chance(last[cell * symbols + end] / 255)}; it ${turns ? `changed its mind ${turns} ${turns === 1 ? "time" : "times"}` : "never changed its mind"}.`;
  picture.setAttribute("aria-label", words);
  const list = make("ol", { className: "heat-names", ariaHidden: "true" }, ...names.map((textContent) => make("li", { textContent })));
  return make("div", { className: "lane" }, make("h3", { textContent: sideName(run.setting, side) }),
    make("div", { className: "heat-frame" }, list, picture), make("p", { className: "figures", textContent: words }));
}
