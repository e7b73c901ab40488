// A guided tour in four steps that follows one cell through both sides, with the formula beside it.

import { byId, make } from "./controls.js";
import { chance, letter as symbolName, place, reason, sideName } from "./words.js";

const PAPER = "Let It Go or Learn to Self-Correct: Continuous Diffusion for Constrained Discrete Tasks";

/** What each rule does with the state, as the paper writes it. */
const FORMULAS = {
  ddpm: ["x_s = α_s x̂₀ + B_t (x_t − α_t x̂₀) + noise", "Eq. 7: the residual of the last state comes along, and with it what the state still holds."],
  ddim: ["x_s = α_s x̂₀ + β_s (x_t − α_t x̂₀) / β_t", "Eq. 25 without noise: the last state comes along entirely."],
  tweedie: ["x_s = α_s x̂₀ + β_s ε,  ε ~ N(0, I)", "Eq. 8: the last state counts only through the proposal x̂₀."],
  resample: ["x_s = α_s x̃₀ + β_s ε,  x̃₀ ~ x̂₀", "Eq. 8 around symbols that are drawn from the proposal, not around their mean."],
  euler: ["x_s = x_t − h u_t", "Eq. 26: the state moves along the velocity, and is never noised again."],
  heun: ["x_s = x_t − h (u_t + u_s) / 2", "Eq. 26, second order: the velocities at both ends of a step are averaged."],
  em: ["x_s = x_t − h u_t + h σ² ∇ log q_t(x_t) / 2 + σ √h ε", "Eq. 28: the state moves on, with noise of a constant scale."],
  "em-decay": ["x_s = x_t − h u_t + h σ_t² ∇ log q_t(x_t) / 2 + σ_t √h ε", "Eq. 28: as much noise as washes mistakes away, less and less towards the end."],
};

/** A formula as it is set: what follows an underscore stands below the line. */
const set = (formula) => formula.split(/(_[a-z])/).map((part) => (part[0] === "_" ? make("sub", { textContent: part.slice(1) }) : part));

export class Tour {
  constructor({ seek, render }) {
    Object.assign(this, { seek, render, run: null, stops: [], at: null });
  }

  get cell() { return this.at === null ? null : this.stops[this.at].cell; }

  listen() {
    byId("tour-next").addEventListener("click", () => (this.at + 1 < this.stops.length ? this.go(this.at + 1) : this.end(true)));
    byId("tour-back").addEventListener("click", () => this.go(Math.max(0, this.at - 1)));
    byId("tour-end").addEventListener("click", () => this.end(true));
  }

  start(run, check) {
    this.run = run;
    this.stops = stops(run, check);
    byId("tour").hidden = false;
    this.go(0);
    byId("tour-title").focus();
  }

  go(at) {
    this.at = at;
    const stop = this.stops[at];
    byId("tour-title").textContent = `${at + 1} of ${this.stops.length}: ${stop.title}`;
    byId("tour-text").replaceChildren(
      ...stop.text.map((text) => make("p", { textContent: text })),
      ...(stop.formula ? [make("p", { className: "formula" }, make("code", {}, ...set(stop.formula[0])), make("span", { textContent: stop.formula[1] }))] : []));
    byId("tour-back").disabled = at === 0;
    byId("tour-next").textContent = at + 1 < this.stops.length ? "Next" : "Done";
    this.seek(stop.step);
    byId("board-0").scrollIntoView({ block: "nearest" }); // beside these words, not under them
  }

  end(back = false) {
    if (this.at === null) return;
    this.at = null;
    byId("tour").hidden = true;
    if (back) byId("tour-start").focus();
    this.render();
  }
}

/** The cell to follow: what was kept on a side that failed, else the cell whose mind changed most. */
function subject(run) {
  for (const side of [0, 1]) {
    const { kept } = run.marks(side);
    if (kept) return { side, cell: kept.cell, pair: run.pair(side) };
  }
  const turns = (side, cell) => run.frames[side].filter((frame, i) => i && frame.p[cell] !== run.frames[side][i - 1].p[cell]).length;
  const cells = run.frames[0][0].p.map((_, cell) => cell).filter((cell) => !run.given?.[cell]);
  return { side: 0, cell: cells.reduce((best, cell) => (turns(0, cell) > turns(0, best) ? cell : best), cells[0]), pair: null };
}

function stops(run) {
  const { side, cell, pair } = subject(run), other = 1 - side, { card, frames, steps, setting } = run;
  const here = place(card, cell, run.cells), letter = (symbol) => symbolName(card, symbol), names = [0, 1].map((i) => sideName(setting, i));
  const rule = (i) => FORMULAS[setting.sides[i].rule];
  const last = frames[side].at(-1), settled = last.since[cell];
  const minds = (i) => frames[i].filter((frame, k) => k && frame.p[cell] !== frames[i][k - 1].p[cell]).length;
  const later = frames[other].filter((frame, k) => k >= settled && frame.p[cell] !== frames[other][k - 1].p[cell]).length;
  const times = (n) => (n === 1 ? "once" : `${n} times`), first = [0, 1].map((i) => letter(frames[i][0].p[cell]));
  const network = setting.sides.every((side) => (side.model ?? setting.model) === setting.model) ? "the same network" : "its network";
  const start = card.masked ? `Both sides start from a board of masks. At every step ${network} looks at the cells that are open and gives each symbol of the others a probability.`
    : `Both sides start from the same noise. At every step ${network} looks at the noisy board and proposes a finished one, x̂₀.`;
  return [
    { title: `follow ${here}`, step: 1, cell, text: [
      `${start} Look at ${here}: ${first[0] === first[1] ? `both now propose ${first[0]}` : `the left now proposes ${first[0]}, the right ${first[1]}`}.`],
      formula: card.masked ? null : ["x̂₀ = E[x₀ | x_t]", "Eq. 4: what the network is trained to predict."] },
    { title: `${names[side]} makes up its mind`, step: settled, cell, text: [
      `At step ${settled} of ${steps} ${names[side]} proposes ${letter(last.p[cell])} at ${here}, where it has changed its mind ${times(minds(side))}, and never lets it go again.`],
      formula: rule(side) },
    { title: `${names[other]} is still free`, step: Math.min(steps, Math.max(settled, Math.round((settled + steps) / 2))), cell, text: [
      `From step ${settled} on ${names[other]} changes its mind at ${here} ${times(later)} more; in the whole run the proposal changes ${frames[other].at(-1).minds} times, against ${last.minds}.`],
      formula: rule(other) },
    { title: "the end", step: steps, cell: pair ? pair.late.cell : cell, text: [
      pair ? `${names[side]}: ${place(card, pair.late.cell, run.cells)} has ${pair.late.left?.length === 0 ? "no symbol left" : "only a symbol that clashes"} (the network gives it ${chance(pair.late.certainty)}), because the ${letter(pair.early.symbol)} at ${here} was kept${pair.early.certainty === undefined ? "" : ` (${chance(pair.early.certainty)})`}.`
        : run.flaw(side) ? `${names[side]}: ${reason(run, side)}` : `${names[side]} ends ${run.verdicts[side].valid ? "in a valid board" : "in a broken one"}; ${names[other]} ends ${run.verdicts[other].valid ? "in a valid board" : "in a broken one"}.`,
      `Let go of the state (Tweedie reprojection), or train the network on its own mistakes (self-correction): both are in the paper, “${PAPER}”.`] },
  ];
}
