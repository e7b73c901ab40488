// One run: two sides, their frames and verdicts, and what they say of the network's mind. It knows no page.

const ILLEGAL = 99, WAY = 4;

/** One character per cell: a symbol, or a certainty from 0 to 35. */
const digits = (text) => Array.from(text, (c) => (c === "?" ? ILLEGAL : parseInt(c, 36)));

/** A frame as it is drawn; `before` is the one of the step before. */
export function decode(data, before, given) {
  const cells = data.x.length;
  const marks = (list) => { const m = new Uint8Array(cells); for (const i of list) m[i] = 1; return m; };
  const p = digits(data.p), since = new Uint16Array(cells);
  let changes = 0;
  for (let i = 0; i < cells; i++) {
    const held = before && before.p[i] === p[i];
    since[i] = held ? before.since[i] : data.step; // the step from which the proposal has held this symbol
    if (before && !held && !given?.[i]) changes += 1;
  }
  return {
    step: data.step, t: data.t, valid: data.valid,
    x: digits(data.x), xc: digits(data.xc), xbad: marks(data.xbad), xcount: data.xbad.length,
    p, pc: digits(data.pc), pbad: marks(data.pbad), pcount: data.pbad.length,
    xi: data.xi, pi: data.pi, // pictures (PNG), where cells are images
    since, changes, minds: (before?.minds ?? 0) + changes,
  };
}

export class Run {
  /** `given` says which cells are clues, where a board has such; `key` is the setting that this run belongs to. */
  constructor(key, setting, card, steps, given) {
    Object.assign(this, { key, setting, card, steps, given, opening: null, frames: [[], []], raw: [[], []], verdicts: [null, null] });
    this.state = "waiting"; // then sampling, done or stopped
    this.recorded = false;
    this.probabilities = null;
    this.most = { xcount: 0, pcount: 0, changes: 0 };
    this.pointed = [null, null];
  }

  take(name, data) {
    if (name === "start") { this.opening = data; this.state = "sampling"; }
    else if (name === "frame") {
      const frames = this.frames[data.side];
      frames.push(decode(data, frames.at(-1), this.given));
      for (const name of Object.keys(this.most)) this.most[name] = Math.max(this.most[name], frames.at(-1)[name]);
      this.raw[data.side].push(data);
    } else if (name === "verdict") this.verdicts[data.side] = data;
    else if (name === "done") this.state = "done";
  }

  get cells() { return this.frames[0][0]?.p.length ?? this.card.cells; }

  get reached() { return Math.min(...this.frames.map((frames) => frames.length)); }

  /** The largest value of a curve, over both sides: they share a scale. */
  highest(name) {
    return Math.max(1, this.most[name]);
  }

  /** What a broken board is pointed at with: the cell that was kept, since when, and the one that it leaves nothing to be. */
  marks(side) {
    if (!this.verdicts[side]) return {};
    this.pointed[side] ??= (() => { const pair = this.pair(side); return { kept: pair ? (pair.early.clue ? null : pair.early) : this.flaw(side), stuck: pair?.late.cell }; })();
    return this.pointed[side];
  }

  /** What a board shows beside the frame of a step: why it failed, and all probabilities if they are here. */
  beside(side, step) {
    const { kept, stuck } = this.marks(side);
    return { steps: this.steps, chances: this.chances?.[side][step - 1],
      kept: kept && step >= kept.since ? kept.cell : null, stuck: step === this.steps ? stuck : null };
  }

  /** Of a graph or a maze, where no two cells clash: the cell that breaks a rule and was settled first. Null where there is none. */
  flaw(side) {
    const verdict = this.verdicts[side], last = this.frames[side].at(-1), { kind } = this.card, n = Math.round(Math.sqrt(this.cells));
    if (!verdict || verdict.valid || !["graph", "maze"].includes(kind)) return null;
    const told = (cell) => last.xbad[cell] && last.x[cell] === last.p[cell] && (kind === "maze" ? last.x[cell] === WAY : Math.floor(cell / n) < cell % n);
    const cells = Array.from(last.x.keys()).filter(told);
    if (!cells.length) return null;
    const cell = cells.reduce((a, b) => (last.since[b] < last.since[a] ? b : a));
    return { cell, symbol: last.x[cell], since: last.since[cell], certainty: last.pc[cell] / 35 };
  }

  /** What failed on one side: the doubtful cell, and the cell beside it that was never let go. Null where there is none. */
  pair(side) {
    const verdict = this.verdicts[side], last = this.frames[side].at(-1);
    if (!verdict || verdict.valid || !last || !verdict.broken?.length) return null;
    const told = new Map(verdict.broken.map((b) => [b.cell, b]));
    const others = (cell) => verdict.clashes.filter((pair) => pair.includes(cell)).map(([a, b]) => (a === cell ? b : a));
    const clashing = verdict.broken.filter((b) => others(b.cell).length);
    if (!clashing.length) return null;
    const stuck = clashing.filter((b) => b.left?.length === 0);
    const late = (stuck.length ? stuck : clashing).reduce((a, b) => (b.certainty < a.certainty ? b : a));
    const partners = others(late.cell).map((cell) => ({ cell, clue: !told.has(cell), since: told.has(cell) ? last.since[cell] : 0 }));
    const open = partners.filter((p) => !p.clue);
    const early = (open.length ? open : partners).reduce((a, b) => (b.since < a.since ? b : a));
    return { late: { ...late, symbol: last.x[late.cell] }, early: { ...early, certainty: told.get(early.cell)?.certainty, symbol: last.x[early.cell] } };
  }
}
