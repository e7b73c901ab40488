// What a run came to, in words.

import { titleOf } from "./setting.js";

const NOUNS = { grid: ["cell", "cells"], maze: ["cell", "cells"], queens: ["queen", "queens"], graph: ["entry", "entries"] };

/** How much of a board breaks a rule, in words. */
export function broken(model, count) {
  const [one, many] = NOUNS[model.kind];
  if (count === 0) return "every rule holds";
  return count === 1 ? `1 ${one} breaks a rule` : `${count} ${many} break a rule`;
}

/** '1 step', '200 steps' */
export const many = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** A time that something will take. */
export const lasting = (seconds) => (seconds < 10 ? `${seconds.toFixed(1)} s` : seconds < 120 ? `${Math.round(seconds)} s` : many(Math.round(seconds / 60), "minute"));

/** A probability as the paper prints it: .31 */
export const chance = (value) => value.toFixed(value < 1 && value >= 0.995 ? 3 : 2).replace(/^0/, "");

/** Where a cell is, in words; of a graph with so many `cells` it is a pair of nodes. */
export function place(model, cell, cells = model.cells) {
  if (model.kind === "queens") return `row ${cell + 1}`;
  if (model.kind === "graph") { const n = Math.round(Math.sqrt(cells)); return `nodes ${Math.floor(cell / n) + 1} and ${(cell % n) + 1}`; }
  return `r${Math.floor(cell / model.columns) + 1}c${(cell % model.columns) + 1}`;
}

/** A symbol in words: of a graph, whether two nodes are joined; of a maze what a cell is. */
const SAID = { graph: ["apart", "joined"], maze: ["wall", "open", "start", "goal", "way"] };
export const letter = (model, symbol) => SAID[model.kind]?.[symbol] ?? model.letters[symbol] ?? "?";

/** A side's name: its rule, and its model where the sides have different ones. */
export function sideName(setting, i) {
  const models = setting.sides.map((side) => side.model ?? setting.model);
  return titleOf(setting.sides[i].rule) + (models[0] === models[1] ? "" : ` (${models[i]})`);
}

/** What the page asks: why one side fails, and what the sides have in common. */
export function question({ model, sides, sure }) {
  if (sure) return "One network, one hard puzzle. How does it know, without a look at the rules, that its board is right?";
  const [networks, samplers] = [sides.map((side) => side.model ?? model), sides.map(({ model, ...rule }) => JSON.stringify(rule))];
  const same = [networks[0] === networks[1] && "network", samplers[0] === samplers[1] && "sampler", "puzzle", "noise"].filter(Boolean).map((what) => `same ${what}`).join(", ");
  const other = same.includes("network") ? (same.includes("sampler") ? null : "sampler") : same.includes("sampler") ? "network" : "side";
  return `S${same.slice(1)}${other ? `. Why does one ${other} fail where the other succeeds?` : ": both sides do the same."}`;
}

/** Why a side failed: a late cell with no symbol left, and an early one that was never let go. */
export function reason(run, side, check) {
  const pair = run.pair(side), model = run.card;
  if (!pair) return flawed(run, side);
  const { late, early } = pair, what = model.kind === "queens" ? "square" : "symbol";
  const doubt = late.left?.length === 0 ? `has no ${what} left (${chance(late.certainty)})` : `holds ${letter(model, late.symbol)} at ${chance(late.certainty)}`;
  const stood = early.clue ? "is a clue" : `has stood since step ${early.since}`;
  return `${place(model, late.cell)} ${doubt}; ${holding(run, early)} it clashes with ${stood}.${wrong(run, early, check)}`;
}

/** Of a graph or a maze: what was kept although it breaks a rule. */
function flawed(run, side) {
  const flaw = run.flaw(side), model = run.card;
  if (!flaw) return "";
  const here = place(model, flaw.cell, run.cells), stood = `has stood since step ${flaw.since}`;
  if (model.kind === "maze") return `the way from S does not reach G; its piece at ${here}, which is cut off, ${stood}.`;
  return `${here} are held ${letter(model, flaw.symbol)} (${chance(flaw.certainty)}), although ${flaw.symbol ? "no" : "a"} path joins them; that ${stood}.`;
}

/** What the run tells at a step, under the question: how it begins, what is kept from when on, and why a side failed. */
export function telling(run, step, check) {
  const { card, setting, steps, verdicts } = run, names = [0, 1].map((i) => sideName(setting, i));
  const failed = [0, 1].filter((i) => verdicts[i] && !verdicts[i].valid), [first] = failed;
  if (verdicts.every(Boolean) && step === steps) {
    if (failed.length && check?.solutions === 0) return { text: "The puzzle has no solution: no sampler can end in a valid board." };
    if (!failed.length) return { text: "Both sides end in a valid board; the race shows how often they do." };
    const why = reason(run, first, check) || `${broken(card, verdicts[first].violations)}.`;
    return { text: `${failed.length > 1 ? "Both sides end in a broken board. " : ""}${names[first]}: ${why}`, bad: true };
  }
  const { kept } = failed.length ? run.marks(first) : {};
  if (kept && step >= kept.since) return { text: `${names[first]} has held ${holding(run, kept)} since step ${kept.since}, and does not let go.`, bad: true };
  return { text: card.masked ? "Both sides start from a board of masks, and open its cells." : "Both sides start from the same noise. A cell lights up where a side changes its mind." };
}

/** What a side holds in a cell: 'the 5 at r3c1'. */
function holding({ card, cells }, { cell, symbol }) {
  if (card.kind === "queens") return `the queen in ${place(card, cell)}`;
  return card.kind === "graph" ? `${place(card, cell, cells)} ${letter(card, symbol)}` : card.kind === "maze" ? `a piece of the way at ${place(card, cell)}` : `the ${letter(card, symbol)} at ${place(card, cell)}`;
}

/** A cell is called wrong only where the puzzle has exactly one solution. */
function wrong(run, { cell, clue, symbol }, check) {
  const model = run.card, right = check?.solutions === 1 && model.kind === "grid" && !model.separator && check.solution?.[cell];
  if (!right || clue || letter(model, symbol) === right) return "";
  return ` It is wrong: the only solution has ${right} there.`;
}

/** What a chosen example was chosen for, beside the shares over many boards; nothing where none were measured. */
export function measured(example, names) {
  if (!example?.shares) return "";
  const [first, second] = example.shares, n = first.n.toLocaleString("en");
  if (example.sure) return `Chosen because it takes several tries. Of ${n} such puzzles this network, trying until it is sure, solves ${String(Number(first.value.toFixed(5))).replace(/^0/, "")}; it was ${second.value ? `sure of a wrong board in ${Math.round(second.value * second.n)}` : "never sure of a wrong board"}.`;
  return `Chosen to show the gap. Over ${n} such boards: ${names[0]} ${chance(first.value)}, ${names[1]} ${chance(second.value)} valid.`;
}

export function verdict(run, side, check) {
  const { valid, violations, first_valid, steps, seconds, calls } = run.verdicts[side];
  const hopeless = !valid && check?.solutions === 0;
  const head = valid ? "✓ A valid board" : hopeless ? "No board to find: the puzzle has no solution" : `✕ Broken: ${broken(run.card, violations)}`;
  const found = valid ? `; the proposal was first valid at step ${first_valid}` : first_valid ? `, although the proposal was valid at step ${first_valid}` : "";
  return {
    head, valid, hopeless,
    why: valid || hopeless ? "" : reason(run, side, check),
    rest: `${many(steps, "step")}, ${many(calls, "network call")}, ${seconds.toFixed(2)} s${found}.`,
  };
}
