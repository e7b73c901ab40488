// One puzzle, again and again, until the network is sure of its own board: every try beside the model's mark. No rule of
// the task is in view before the end. An Attempts owns its board and its list.

import { stream } from "./api.js";
import { clues, makeBoard } from "./boards.js";
import { byId, make, wholeNumber } from "./controls.js";
import { decode } from "./run.js";
import { card, state } from "./state.js";
import { broken, place } from "./words.js";

const WORST = 100; // a self-likelihood of minus so much fills the bar
const FRAME = 40, PAUSE = 900; // milliseconds that a step, and a board that is doubted, stay in sight at least

/** What a series of tries belongs to. */
const keyOf = ({ model, puzzle, seed }) => JSON.stringify([model, puzzle, seed]);

/** −43.7, or −0.00: a self-likelihood is 0 at most. */
const likelihood = (value) => `−${Math.abs(value).toFixed(2)}`;

const symbols = () => state.setting.cells === "symbols"; // where cells are images

const blind = (frame) => ({ ...frame, xbad: new Uint8Array(frame.x.length), pbad: new Uint8Array(frame.x.length) });

class Attempts {
  constructor(key, card, puzzle, given, most) {
    Object.assign(this, { key, card, given, most, tries: [], frames: [], choice: null, shown: null, steps: 1, stream: null });
    this.state = "waiting"; // then trying, done or stopped
    this.board = makeBoard(card, puzzle);
    this.words = make("p", { className: "hidden" });
    this.list = make("ol", { className: "tries" });
    this.caption = make("p", { className: "now", textContent: "the puzzle" });
    this.verdict = make("p", { className: "verdict" });
    this.root = make("div", { className: "attempts" }, make("div", { className: "board-frame" }, this.board.svg, this.words), make("div", {}, this.caption, this.list, this.verdict));
    this.label("the puzzle");
  }

  take(name, data) {
    if (name === "start") { this.state = "trying"; this.steps = data.steps; }
    if (name === "frame") this.frame(data);
    if (name === "try") this.enter(data);
    if (name === "choice") { this.choice = data; this.conclude(); }
    if (name === "done") this.state = "done";
  }

  label(text) {
    this.caption.textContent = text;
    this.board.svg.setAttribute("aria-label", text);
  }

  frame(data) {
    this.frames.push(decode(data, this.frames.at(-1), this.given));
    this.board.draw(blind(this.frames.at(-1)), "p", { steps: this.steps, symbols: symbols() });
    this.label(`try ${this.tries.length + 1}, step ${data.step} of ${this.steps}: what the network proposes`);
  }

  /** A try has ended: its board, each cell as warm as the network doubts it. */
  enter(told) {
    const last = this.frames.at(-1), worst = told.cells.indexOf(Math.min(...told.cells));
    const heat = { ...last, p: last.x, pi: last.xi, pbad: last.xbad, pc: told.cells.map((log) => 35 * Math.exp(log)) };
    const symbol = this.card.letters[last.x[worst]] ?? "?", compared = `${likelihood(told.belief)}, ${told.sure ? "above" : "below"} its mark ${likelihood(told.mark)}`;
    const words = told.sure ? `${compared}: it is sure of this board, and stops.` : `${compared}: it doubts this board, most of all the ${symbol} at ${place(this.card, worst)}.`;
    const button = make("button", { type: "button", className: "quiet", textContent: `Try ${told.number}` });
    const bar = make("span", { className: `bar-of${told.sure ? " good" : ""}`, ariaHidden: "true" });
    bar.style.setProperty("--part", `${Math.max(1, (100 * Math.log1p(-told.belief)) / Math.log1p(WORST)).toFixed(1)}%`);
    const row = make("li", {}, button, bar, make("span", { textContent: words }));
    this.tries.push({ told, heat, row });
    this.frames = [];
    button.addEventListener("click", () => this.show(told.number - 1));
    this.list.append(row);
    this.show(told.number - 1);
  }

  /** The board of one try. The rules come into view only once all is decided. */
  show(i) {
    const { told, heat } = this.tries[i], frame = this.choice ? heat : blind(heat);
    this.shown = i;
    this.board.draw(frame, "heat", { steps: this.steps, symbols: symbols() });
    this.words.textContent = this.board.rows(frame, "heat").join("; ");
    this.label(`the board of try ${told.number}, self-likelihood ${likelihood(told.belief)}; the warmer a cell, the more it is doubted`);
    this.tries.forEach(({ row }, j) => row.classList.toggle("shown", i === j));
  }

  conclude() {
    const { sure, solved, number, tries, calls, seconds, belief } = this.choice, { heat } = this.tries[number - 1];
    const count = heat.xbad.reduce((sum, bad) => sum + bad, 0);
    const head = sure ? `Sure at try ${number}` : tries === 1 ? `Not sure of its board (${likelihood(belief)})` : `Not sure of any of its ${tries} boards; most of try ${number} (${likelihood(belief)})`;
    this.verdict.className = `verdict ${solved ? "good" : "bad"}`;
    this.verdict.replaceChildren(make("b", { textContent: `${solved ? "✓" : "✕"} ${head}` }),
      make("strong", { textContent: `The rules are looked at only now: ${broken(this.card, count)}.` }),
      make("span", { textContent: `${tries} ${tries === 1 ? "try" : "tries"}, ${calls} network calls, those for the self-likelihood included, ${seconds.toFixed(2)} s.` }));
    this.show(number - 1);
  }

  get told() {
    if (!this.choice) return this.state === "waiting" ? "Waiting for a place …" : this.state === "stopped" ? "Stopped." : `Try ${this.tries.length + 1} of at most ${this.most}`;
    return this.choice.sure ? `Sure after ${this.choice.tries} ${this.choice.tries === 1 ? "try" : "tries"}.` : `Not sure after ${this.choice.tries} tries.`;
  }
}

/** The section of the page; only a model that has a mark shows it. */
export class Until {
  constructor({ change, problem, checked, calm }) {
    Object.assign(this, { change, problem, checked, calm });
  }

  listen() {
    byId("sure-start").addEventListener("click", () => this.press());
  }

  /** A new setting: tries that it no longer describes go. */
  follow(setting) {
    if (state.sure && state.sure.key !== keyOf(setting)) this.end();
  }

  end() {
    state.sure.stream?.abort();
    state.sure = state.setting.sure = null;
  }

  render() {
    const { sure } = state, holder = byId("sure-show");
    byId("until").hidden = card().sure == null;
    byId("sure-start").textContent = sure?.stream ? "Stop" : "Try until sure";
    byId("sure-status").textContent = sure?.told ?? "";
    if (holder.firstChild !== (sure?.root ?? null)) holder.replaceChildren(...(sure ? [sure.root] : []));
  }

  start(tries) {
    byId("sure-tries").value = Math.min(tries, byId("sure-tries").max);
    return this.press();
  }

  async press() {
    if (state.sure?.stream) return state.sure.stream.abort();
    let tries, seed;
    try { [tries, seed] = [wholeNumber("sure-tries", "Tries"), wholeNumber("seed", "Seed")]; } catch (error) { byId("sure-status").textContent = error.message; return; }
    if (state.sure) this.end();
    this.change({ seed, sure: tries });
    await this.checked();
    if (state.check?.detail) { byId("sure-status").textContent = state.check.detail; return; }
    const { setting } = state, chosen = card(), given = clues(chosen, setting.puzzle)?.map((clue) => clue !== null);
    const sure = (state.sure = new Attempts(keyOf(setting), chosen, setting.puzzle, given, tries));
    sure.stream = new AbortController();
    this.render();
    try {
      await this.watch(sure, { model: setting.model, puzzle: setting.puzzle, seed, tries });
    } catch (error) {
      sure.state = "stopped";
      if (error.name !== "AbortError" && state.sure === sure) this.problem(error.message);
    } finally {
      sure.stream = null;
      if (state.sure === sure) this.render();
    }
  }

  /** Events at a pace that an eye can follow. */
  async watch(sure, asked) {
    for await (const [name, data] of stream("/api/until-sure", asked, sure.stream.signal)) {
      sure.take(name, data);
      if (state.sure !== sure) return;
      byId("sure-status").textContent = sure.told;
      const wait = name === "frame" ? FRAME : name === "try" && !data.sure ? PAUSE : 0;
      if (wait && !this.calm()) await new Promise((go) => setTimeout(go, wait));
    }
  }
}
