// Boards of every task. A board has `svg`, `draw(frame, view, more)` and `rows(frame, view)`, its content in words.
// A frame is one of Run's: x and p (symbols), xc and pc (certainty), xbad and pbad (cells that break a rule), since (the
// step from which the proposal has held its symbol); null is the puzzle. `more` has the run's steps, the cells to be framed
// (`cell` is followed, `kept` and `stuck` are why a board failed), and in the view of pencil marks this step's probabilities;
// where cells are images, `image` has those of the clues, and `symbols` says that symbols are to be shown instead.

import { dress, el, say } from "./svg.js";
import { layout } from "./graph-layout.js";
import { chance } from "./words.js";

export const shown = (view) => (view === "x" || view === "both" ? "x" : "p");
const level = (certainty) => Math.min(7, Math.floor(certainty / 4.5));
/** How warm a cell is: minus the log-probability of its symbol, from 0 (.9 and more) to 7 (a ninth and less). */
const doubt = (certainty) => Math.min(7, Math.round(-3.2 * Math.log(Math.max(1, certainty) / 35)));

/** In masked diffusion a cell of the state has a symbol, for certain, or none. */
const isMasked = (model, frame, key, i) => model.masked && frame !== null && key === "x" && frame.xc[i] === 0;
const FLASH = 0.02; // of the run: how long a change of mind is lit

/** How a cell looks: ink by certainty, ground by certainty (state), by how long the proposal has held, or by doubt. */
function look(frame, view, i, more) {
  if (view === "heat") return `h${doubt(frame.pc[i])}${frame.pbad[i] ? " bad" : ""}`;
  const key = shown(view), sure = level(frame[key + "c"][i]), held = frame.step - frame.since[i], steps = more?.steps ?? frame.step;
  const flash = key === "p" && frame.step > 1 && frame.since[i] > 1 && held <= Math.max(0, FLASH * steps - 1);
  const ground = key === "x" ? sure : Math.min(sure + 1, 7, Math.floor((16 * held) / steps));
  return `c${sure} t${ground}${frame[key + "bad"][i] ? " bad" : ""}${flash ? " flash" : ""}`;
}

/** Whether the puzzle's text is no board: all cells are open, and the network is told the text beside them. */
export const told = (model) => model.kind === "grid" && Boolean(model.context);

/** The puzzle's text cut into cells; white space between some of them is none. */
export function cut(model, puzzle) {
  if (model.separator) return puzzle.split(model.separator);
  const all = Array.from(puzzle);
  return all.length > model.cells ? all.filter((c) => c.trim()) : all;
}

/** The puzzle's text as one entry per cell: a symbol's index, or null where it is open. */
export function clues(model, puzzle) {
  if (model.kind === "graph") return null;
  if (told(model)) return Array(model.cells).fill(null);
  const flat = model.kind === "maze" ? puzzle.replaceAll("/", "") : puzzle;
  const forms = model.kind === "maze" ? (c) => [c] : (c) => [c, c.toUpperCase(), c.toLowerCase()];
  return cut(model, flat).map((c) => {
    const symbol = model.letters.indexOf(forms(c).find((form) => model.letters.includes(form)) ?? c);
    return symbol < 0 || (model.kind === "maze" && (c === "." || c === "o")) ? null : symbol;
  });
}

export function makeBoard(model, puzzle) {
  const make = { grid: gridBoard, queens: queensBoard, maze: mazeBoard, graph: graphBoard }[model.kind];
  const board = make(model, puzzle);
  board.svg.classList.add("board", model.kind);
  board.draw(null, "p");
  return board;
}

function canvas(width, height = width) {
  return el("svg", { viewBox: `-2 -2 ${width + 4} ${height + 4}`, role: "img" });
}

/** Frames around the cell that was kept, the one that is stuck and the one that is followed; `put` moves one to a cell. */
function makeFrames(svg, name, attributes, put) {
  const frames = Object.entries({ kept: "kept", stuck: "stuck", cell: "follow" }).map(([of, role]) => [of, el(name, { class: role, ...attributes }, svg)]);
  return (more) => {
    for (const [of, node] of frames) {
      const cell = more?.[of] ?? null;
      node.setAttribute("display", cell === null ? "none" : "inline");
      if (cell !== null) put(node, cell);
    }
  };
}

const moved = (at) => (node, cell) => node.setAttribute("transform", `translate(${at(cell).join(" ")})`);

let pictures = 0;

/** Where cells are images: one picture over all cells, made when it first comes. It is a mask, so that its ink is the page's. */
function pictureLayer(svg, size) {
  const layer = el("g", {}, svg), id = `picture-${(pictures += 1)}`;
  let shot = null;
  return (png) => {
    layer.setAttribute("display", png ? "inline" : "none");
    if (!png || shot?.png === png) return;
    if (!shot) {
      shot = el("image", { ...size, preserveAspectRatio: "none" }, el("mask", { id }, layer));
      el("rect", { class: "picture", ...size, mask: `url(#${id})` }, layer);
    }
    shot.png = png;
    shot.setAttribute("href", `data:image/png;base64,${png}`);
  };
}

function gridBoard(model, puzzle) {
  const unit = 40, { rows: height, columns, box } = model, svg = canvas(columns * unit, height * unit), given = clues(model, puzzle);
  const longest = Math.max(...Array.from(model.letters, (text) => text.length));
  const cells = Array.from({ length: height * columns }, (_, i) => {
    const x = (i % columns) * unit, y = Math.floor(i / columns) * unit;
    const group = el("g", { transform: `translate(${x} ${y})` }, svg);
    el("rect", { class: "bg", width: unit, height: unit }, group);
    const hatch = el("path", { class: "hatch", d: "M0 10 10 0M0 20 20 0M0 30 30 0M0 40 40 0M10 40 40 10M20 40 40 20M30 40 40 30", display: "none" }, group);
    el("path", { class: "mark", d: `M11 ${unit - 5.5}h${unit - 22}` }, group);
    const symbol = el("text", { class: "sym", x: unit / 2, y: unit / 2 + 1 }, group);
    const ghost = el("text", { class: "ghost", x: unit - 7, y: 9 }, group);
    if (longest > 1) symbol.style.fontSize = `${Math.min(18, 62 / longest)}px`;
    return { group, symbol, ghost, hatch, marks: null };
  });
  const paint = pictureLayer(svg, { width: columns * unit, height: height * unit });
  let pictured = false, last = null;
  svg.addEventListener("pointermove", (event) => { // what the decoder reads of the image that is pointed at
    const i = cells.findIndex(({ group }) => group === event.target.parentNode);
    if (i >= 0 && (pictured || cells[i].title)) say((cells[i].title ??= el("title", {}, cells[i].group)), pictured ? reads(i) : "");
  });
  const point = makeFrames(svg, "rect", { width: unit - 4, height: unit - 4 }, moved((cell) => [(cell % columns) * unit + 2, Math.floor(cell / columns) * unit + 2]));
  const every = (count, step, line) => Array.from({ length: count / step + 1 }, (_, k) => line(k * step * unit)).join("");
  const lines = (across, down) => every(columns, across, (x) => `M${x} 0V${height * unit}`) + every(height, down, (y) => `M0 ${y}H${columns * unit}`);
  el("path", { class: "thin", d: lines(1, 1) }, svg);
  el("path", { class: "thick", d: box ? lines(box, box) : lines(columns, height) }, svg);
  const letter = (symbol) => model.letters[symbol] ?? "?";
  function reads(i) {
    const { frame, key } = last;
    if (given[i] != null) return `clue ${letter(given[i])}`;
    return frame ? `read as ${letter(frame[key][i])}, ${chance(frame[key + "c"][i] / 35)}` : "";
  }
  /** All symbols that the network considers, each as dark as it is likely. */
  function pencil(cell, chances) {
    const across = Math.ceil(Math.sqrt(model.letters.length));
    cell.marks ??= Array.from(model.letters, (text, s) => {
      const place = (k) => ((k + 0.5) * unit) / across;
      return say(el("text", { class: "pencil", x: place(s % across), y: place(Math.floor(s / across)) + 1, "font-size": (unit / across) * 0.8 }, cell.group), text);
    });
    cell.marks.forEach((mark, s) => {
      const chance = chances ? chances[s] : 0;
      dress(mark, chance < 13 ? "pencil none" : `pencil m${Math.min(4, Math.floor(chance / 52))}`);
    });
  }
  function draw(frame, view, more) {
    const key = shown(view), { marked = [] } = more ?? {};
    cells.forEach((cell, i) => {
      const { group, symbol, ghost, hatch } = cell, clue = given[i] ?? null, hidden = isMasked(model, frame, key, i);
      hatch.setAttribute("display", hidden ? "inline" : "none");
      if (!frame) {
        dress(group, (clue !== null ? "cell clue" : "cell") + (marked.includes(i) ? " bad" : ""));
        say(symbol, clue !== null ? letter(clue) : "");
        say(ghost, "");
        if (cell.marks) pencil(cell, null);
        return;
      }
      const bad = frame[key + "bad"][i] ? " bad" : "";
      const all = view === "marks" && clue === null && more?.chances ? more.chances.subarray(i * model.letters.length, (i + 1) * model.letters.length) : null;
      const open = all && Math.max(...all) <= 230 ? all : null; // several symbols are considered: marks instead of one
      dress(group, hidden ? "cell masked" : clue !== null ? `cell clue${bad}` : `cell ${look(frame, view, i, more)}${open ? " open" : ""}`);
      say(symbol, hidden || open ? "" : letter(frame[key][i]));
      say(ghost, view === "both" && clue === null ? letter(frame.p[i]) : "");
      if (cell.marks || open) pencil(cell, open);
    });
    const png = more?.symbols ? null : frame ? view !== "marks" && frame[key + "i"] : more?.image;
    paint(png);
    last = { frame, key };
    if (pictured !== Boolean(png)) { // the symbol goes to the corner, or back
      pictured = !pictured;
      for (const { symbol } of cells) for (const [name, middle] of [["x", unit / 2], ["y", unit / 2 + 1]]) symbol.setAttribute(name, pictured ? unit - 6 : middle);
      svg.classList.toggle("pictured", pictured);
    }
    point(more);
  }
  function rows(frame, view) {
    const symbols = frame ? frame[shown(view)] : given;
    return Array.from({ length: height }, (_, r) =>
      `row ${r + 1}: ` + symbols.slice(r * columns, (r + 1) * columns).map((s) => (s === null ? "blank" : letter(s))).join(" "));
  }
  return { svg, draw, rows, unit, columns, height };
}

const QUEEN = "M8 31h24v3.5H8zM9.5 28.5 6 13.2l7.4 6.6L15.6 8l4.4 10.6L24.4 8l2.2 11.8 7.4-6.6-3.5 15.3z";

function queensBoard(model, puzzle) {
  const unit = 40, { side } = model, svg = canvas(side * unit), given = clues(model, puzzle);
  for (let i = 0; i < side * side; i++) {
    const r = Math.floor(i / side), c = i % side;
    el("rect", { class: `square ${(r + c) % 2 ? "dark" : "light"}`, x: c * unit, y: r * unit, width: unit, height: unit }, svg);
  }
  el("rect", { class: "thick", width: side * unit, height: side * unit }, svg);
  const point = makeFrames(svg, "rect", { x: 2, y: 2, width: side * unit - 4, height: unit - 4 }, moved((row) => [0, row * unit])); // a cell is a row
  const attacks = el("path", { class: "attack" }, svg);
  const queens = Array.from({ length: side }, (_, row) => {
    const group = el("g", {}, svg), ghost = el("g", {}, svg);
    el("rect", { class: "halo", x: 1, y: 1, width: unit - 2, height: unit - 2 }, group);
    el("path", { class: "shape", d: QUEEN }, group);
    ghost.setAttribute("class", "queen");
    el("circle", { class: "ring", cx: unit / 2, cy: unit / 2, r: 17 }, ghost);
    const place = (node, column) => {
      const visible = column !== null && column < side;
      node.setAttribute("display", visible ? "inline" : "none");
      if (visible) node.setAttribute("transform", `translate(${column * unit} ${row * unit})`);
    };
    return { group, ghost, place };
  });
  /** Lines between queens that attack each other. */
  function lines(columns) {
    const path = [];
    for (let i = 0; i < side; i++) for (let j = i + 1; j < side; j++) {
      const [a, b] = [columns[i], columns[j]];
      if (a == null || b == null || a >= side || b >= side || (a !== b && Math.abs(a - b) !== j - i)) continue;
      path.push(`M${(a + 0.5) * unit} ${(i + 0.5) * unit}L${(b + 0.5) * unit} ${(j + 0.5) * unit}`);
    }
    return path.join("");
  }
  function draw(frame, view, more) {
    const key = shown(view);
    attacks.setAttribute("d", lines(frame ? frame[key].map((c, i) => (frame[key + "bad"][i] && (given[i] != null || frame[key + "c"][i] > 22) ? c : null)) : given));
    queens.forEach(({ group, ghost, place }, row) => {
      const clue = given[row] ?? null;
      place(group, frame ? frame[key][row] : clue);
      place(ghost, frame && view === "both" && frame.p[row] !== frame.x[row] ? frame.p[row] : null);
      const bad = (frame ? frame[key + "bad"][row] : more?.marked?.includes(row)) ? " bad" : "";
      dress(group, `queen ${clue !== null ? "clue" + bad : frame ? look(frame, view, row, more) : ""}`);
    });
    point(more);
  }
  const rows = (frame, view) => (frame ? frame[shown(view)] : given).map((c, r) =>
    `row ${r + 1}: ${c === null ? "no queen" : "queen at " + (model.letters[c] ?? "?")}`);
  return { svg, draw, rows, unit, columns: side, height: side };
}

const [WALL, , START, GOAL, WAY] = [0, 1, 2, 3, 4];

function mazeBoard(model, puzzle) {
  const unit = 20, { side } = model, svg = canvas(side * unit), given = clues(model, puzzle);
  el("rect", { class: "bg", width: side * unit, height: side * unit }, svg);
  const cells = Array.from({ length: side * side }, (_, i) => {
    const x = (i % side) * unit, y = Math.floor(i / side) * unit, symbol = given[i] ?? null;
    if (symbol === WALL) return void el("rect", { class: "wall", x, y, width: unit + 0.3, height: unit + 0.3 }, svg);
    const end = symbol === START || symbol === GOAL;
    const way = el("rect", { x: x + 1, y: y + 1, width: unit - 2, height: unit - 2, rx: 3 }, svg);
    const dot = el("circle", { cx: x + unit / 2, cy: y + unit / 2, r: 3.2 }, svg);
    if (end) say(el("text", { class: "end", x: x + unit / 2, y: y + unit / 2 + 1 }, svg), model.letters[symbol]);
    return { way, dot, end };
  });
  el("rect", { class: "thick", width: side * unit, height: side * unit }, svg);
  const point = makeFrames(svg, "rect", { x: -2, y: -2, width: unit + 4, height: unit + 4 }, moved((cell) => [(cell % side) * unit, Math.floor(cell / side) * unit]));
  function draw(frame, view, more) {
    const key = shown(view);
    cells.forEach((cell, i) => {
      if (!cell) return;
      const symbol = frame ? frame[key][i] : 1, bad = frame && frame[key + "bad"][i] ? " bad" : "";
      if (cell.end) return dress(cell.way, `terminal${bad}`);
      dress(cell.way, `way${symbol === WAY ? " on" : symbol !== 1 ? " odd" : ""} ${frame ? look(frame, view, i, more) : ""}`);
      dress(cell.dot, view === "both" && frame && frame.p[i] === WAY ? "dot on" : "dot");
    });
    point(more);
  }
  function rows(frame, view) {
    const symbols = frame ? frame[shown(view)] : given;
    return Array.from({ length: side }, (_, r) =>
      `row ${r + 1}: ` + symbols.slice(r * side, (r + 1) * side).map((s) => model.letters[s ?? 1] ?? "?").join(" "));
  }
  return { svg, draw, rows, unit, columns: side, height: side };
}

/** The number of each node's component, counted from 0 in the order of their first nodes. */
export function components(n, linked) {
  const of = Array(n).fill(-1);
  let count = 0;
  for (let start = 0; start < n; start++) {
    if (of[start] >= 0) continue;
    const open = [start];
    of[start] = count;
    while (open.length) {
      const i = open.pop();
      for (let j = 0; j < n; j++) if (of[j] < 0 && (linked(i, j) || linked(j, i))) { of[j] = count; open.push(j); }
    }
    count += 1;
  }
  return of;
}

function graphBoard(model, puzzle) {
  const size = 400, svg = canvas(size), edges = puzzle.split("/"), n = edges.length;
  const points = layout(edges, size, 26);
  const line = (i, j, name, parent) => el("line", { class: name, x1: points[i][0], y1: points[i][1], x2: points[j][0], y2: points[j][1] }, parent);
  const pairs = [], echoes = [];
  for (let i = 0; i < n; i++) for (let j = i + 1; j < n; j++) {
    pairs.push([i, j, line(i, j, "pair", svg)]);
    echoes.push([i, j, line(i, j, "echo", svg)]);
  }
  for (let i = 0; i < n; i++) for (let j = i + 1; j < n; j++) if (edges[i][j] === "1") line(i, j, "edge", svg);
  const ring = ([x, y]) => `M${x - 20} ${y}a20 20 0 1 0 40 0a20 20 0 1 0 -40 0`;
  const point = makeFrames(svg, "path", {}, (node, cell) => {
    const ends = [points[Math.floor(cell / n)], points[cell % n]];
    node.setAttribute("d", `${ends.map(ring).join("")}M${ends[0].join(" ")}L${ends[1].join(" ")}`);
  });
  const nodes = points.map(([x, y], i) => {
    const node = el("g", { class: "node", transform: `translate(${x} ${y})` }, svg);
    el("circle", { r: 15 }, node);
    say(el("text", { y: 1 }, node), String(i + 1));
    return node;
  });
  const own = components(n, (i, j) => edges[i][j] === "1");
  function draw(frame, view, more) {
    const key = shown(view);
    const joined = (symbols, i, j) => symbols[i * n + j] === 1 || symbols[j * n + i] === 1;
    for (const [i, j, node] of pairs) {
      if (!frame) { dress(node, "pair"); continue; }
      const sure = Math.min(frame[key + "c"][i * n + j], frame[key + "c"][j * n + i]);
      const bad = frame[key + "bad"][i * n + j] || frame[key + "bad"][j * n + i];
      const flash = key === "p" && / flash/.test(look(frame, view, i * n + j, more)) ? " flash" : "";
      const ink = view === "heat" ? `h${doubt(sure)}` : `c${level(sure)}`;
      dress(node, `pair${joined(frame[key], i, j) ? " on" : ""} ${ink}${bad ? " bad" : ""}${flash}`);
    }
    for (const [i, j, node] of echoes) dress(node, frame && view === "both" && joined(frame.p, i, j) ? "echo on" : "echo");
    point(more);
    nodes.forEach((node, i) => dress(node, `node k${own[i] % 8}${frame && frame[key + "bad"][i * n + i] ? " bad" : ""}`));
  }
  function rows(frame, view) {
    const symbols = frame ? frame[shown(view)] : Array.from(edges.join(""), Number);
    return Array.from({ length: n }, (_, i) => {
      const others = Array.from({ length: n }, (_, j) => j).filter((j) => j !== i && symbols[i * n + j] === 1);
      return `node ${i + 1} ${frame ? "joined with" : "linked to"}: ${others.map((j) => j + 1).join(" ") || "none"}`;
    });
  }
  return { svg, draw, rows, nodes, unit: 0, columns: 0 };
}
