// What a run came to, in words.

import { titleOf } from "./setting.js";

const NOUNS = { grid: ["cell", "cells"], maze: ["cell", "cells"], queens: ["queen", "queens"], graph: ["entry", "entries"] };

/** How much of a board breaks a rule, in words. */
export function broken(model, count) {
  const [one, many] = NOUNS[model.kind];
  if (count === 0) return "every rule holds";
  return count === 1 ? `1 ${one} breaks a rule` : `${count} ${many} break a rule`;
}

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
  if (!pair) return "";
  const { late, early } = pair, what = model.kind === "queens" ? "square" : "symbol";
  const doubt = late.left?.length === 0 ? `has no ${what} left (${chance(late.certainty)})` : `holds ${letter(model, late.symbol)} at ${chance(late.certainty)}`;
  const thing = model.kind === "queens" ? "the queen in" : `the ${letter(model, early.symbol)} at`;
  const stood = early.clue ? "is a clue" : `has stood since step ${early.since}`;
  return `${place(model, late.cell)} ${doubt}; ${thing} ${place(model, early.cell)} it clashes with ${stood}.${wrong(run, early, check)}`;
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
  if (example.sure) return `Chosen because it takes several tries. Of ${n} such puzzles this network, trying until it is sure, solves ${String(Number(first.value.toFixed(4))).replace(/^0/, "")}; it was sure of a wrong board in ${Math.round(second.value * second.n)}.`;
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
    rest: `${steps} steps, ${calls} network calls, ${seconds.toFixed(2)} s${found}.`,
  };
}
