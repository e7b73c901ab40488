// The puzzle, to be edited by pointer and by keyboard. The puzzle's text is the only state.

import { clues, cut, makeBoard, told } from "./boards.js";
import { el } from "./svg.js";

const HELP = {
  grid: "Click a cell or use the arrow keys; type a symbol, Delete blanks it.",
  queens: "Click a square, or move with the arrow keys and press Space, to place or remove a queen.",
  maze: "Space turns a cell into a wall or back; S and G move the start and the goal.",
  graph: "Choose two nodes, one after the other, to link or unlink them.",
};
const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export const help = (model) => HELP[model.kind];

/** What someone pasted, as the one line that the server reads. */
export function tidy(model, text) {
  if (model.kind === "maze" || model.kind === "graph") return text.trim().split(/\s*[\n/]\s*/).join("/");
  return model.separator || told(model) ? text.trim() : text.replace(/\s+/g, "");
}

export function blank(model, puzzle) {
  if (model.kind === "graph") return puzzle.replaceAll("1", "0");
  if (model.kind === "maze") return puzzle.replace(/[#o]/g, ".");
  return told(model) ? puzzle : Array(model.cells).fill(model.blank ?? ".").join(model.separator);
}

/** Can this text be drawn at all? */
export function drawable(model, puzzle) {
  const rows = puzzle.split("/");
  if (model.kind === "graph") return rows.length > 1 && rows.every((row) => row.length === rows.length);
  if (model.kind === "maze") return puzzle.replaceAll("/", "").length === model.cells;
  return told(model) || cut(model, puzzle).length === model.cells;
}

/** The text, cut or filled up so that it can be drawn: what is there so far stays in sight. */
export function drawn(model, puzzle) {
  if (drawable(model, puzzle)) return puzzle;
  const filled = (list, length) => Array.from({ length }, (_, i) => list[i] ?? ((model.kind === "grid" && model.blank) || "."));
  if (model.kind === "graph") {
    const rows = puzzle.split("/"), n = rows.length > 1 ? Math.min(rows.length, 32) : model.side, one = (i, j) => rows[i]?.[j] === "1";
    return Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => (i !== j && (one(i, j) || one(j, i)) ? "1" : "0")).join("")).join("/");
  }
  if (model.kind === "maze") return filled(puzzle.replaceAll("/", ""), model.cells).join("");
  return filled(cut(model, puzzle), model.cells).join(model.separator);
}

/** The cells that a complaint names: 'r1c2', or 'row 3' where a cell is a row. */
export function named(model, words) {
  const cells = [...words.matchAll(/\br(\d+)c(\d+)\b/g)].map(([, r, c]) => (r - 1) * model.columns + Number(c) - 1);
  return cells.length || model.kind !== "queens" ? cells : [...words.matchAll(/\brow (\d+)\b/g)].map(([, r]) => r - 1);
}

const replaced = (text, i, c) => text.slice(0, i) + c + text.slice(i + 1);

const EDITS = {
  grid(model, puzzle, i, key) {
    const put = (text) => cut(model, puzzle).map((old, j) => (j === i ? text : old)).join(model.separator);
    if (key === "Click") return puzzle;
    if (told(model)) return null;
    const typed = (text) => (key.length === 1 ? text.slice(0, 1).toLowerCase() === key.toLowerCase() : text === key);
    const letter = Array.from(model.letters).find(typed);
    if (letter !== undefined) return put(letter);
    return ["Backspace", "Delete", "0", ".", " "].includes(key) ? put(model.blank ?? ".") : null;
  },
  queens(model, puzzle, i, key) {
    const row = Math.floor(i / model.side), letter = model.letters[i % model.side];
    if (["Backspace", "Delete", "0", "."].includes(key)) return replaced(puzzle, row, ".");
    if (["Click", " ", "Enter"].includes(key)) return replaced(puzzle, row, puzzle[row].toLowerCase() === letter ? "." : letter);
    return null;
  },
  maze(model, puzzle, i, key) {
    let flat = puzzle.replaceAll("/", "").replaceAll("o", ".").replaceAll(" ", ".");
    const mark = key.toUpperCase();
    if (["Click", " ", "Enter", "#"].includes(key)) {
      if ("SG".includes(flat[i])) return puzzle;
      flat = replaced(flat, i, flat[i] === "#" ? "." : "#");
    } else if (mark === "S" || mark === "G") {
      if ("SG".includes(flat[i])) return puzzle;
      flat = replaced(flat.replace(mark, "."), i, mark);
    } else return null;
    return Array.from({ length: model.side }, (_, r) => flat.slice(r * model.side, (r + 1) * model.side)).join("/");
  },
};

/** Goes into `holder`; with a `focus` that cell has it at once, so that no key is lost. */
export function makeEditor(holder, model, puzzle, focus, onEdit) {
  const board = makeBoard(model, puzzle);
  board.svg.setAttribute("aria-label", "The puzzle. " + HELP[model.kind]);
  const focusable = model.kind === "graph" ? addNodes(board, puzzle, onEdit) : addCells(board, model, puzzle, focus, onEdit);
  holder.replaceChildren(board.svg);
  if (focus !== null) focusable[focus]?.focus();
  return board;
}

/** What a finger presses where there is no keyboard: [key, text, name]. */
export function padKeys(model) {
  if (model.kind === "grid") return [...Array.from(model.letters, (c) => [c, c, c]), ["Delete", "⌫", "blank"]];
  if (model.kind === "maze") return [["#", "▦", "wall"], ["S", "S", "start"], ["G", "G", "goal"]];
  return [];
}

function label(model, given, i) {
  const r = Math.floor(i / model.columns), c = i % model.columns, place = `row ${r + 1}, column ${c + 1}`;
  if (model.kind === "queens") return `${place}${given[r] === c ? ", queen" : ""}`;
  if (model.kind === "maze") return `${place}, ${{ 0: "wall", 2: "start", 3: "goal" }[given[i]] ?? "open"}`;
  return `${place}, ${given[i] === null ? "blank" : "clue " + model.letters[given[i]]}`;
}

function addCells(board, model, puzzle, focus, onEdit) {
  const { svg, unit, columns, height } = board, given = clues(model, puzzle), cells = [];
  svg.setAttribute("role", "grid");
  const move = (from, to) => {
    cells[from].setAttribute("tabindex", "-1");
    cells[to].setAttribute("tabindex", "0");
    cells[to].focus();
  };
  const edit = (i, key) => {
    const text = EDITS[model.kind](model, puzzle, i, key);
    if (text !== null && text !== puzzle) onEdit(text, i);
    return text !== null;
  };
  let row;
  for (let i = 0; i < height * columns; i++) {
    if (i % columns === 0) row = el("g", { role: "row" }, svg);
    const x = (i % columns) * unit, y = Math.floor(i / columns) * unit;
    const cell = el("g", { role: "gridcell", tabindex: i === (focus ?? 0) ? 0 : -1, "data-cell": i, "aria-label": label(model, given, i) }, row);
    el("rect", { class: "hit", x: x + 1.5, y: y + 1.5, width: unit - 3, height: unit - 3 }, cell);
    cell.addEventListener("click", () => { move(cells.findIndex((c) => c.getAttribute("tabindex") === "0"), i); edit(i, "Click"); });
    cell.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in ARROWS) {
        const [down, right] = ARROWS[event.key], r = Math.floor(i / columns) + down, c = (i % columns) + right;
        if (r >= 0 && c >= 0 && r < height && c < columns) move(i, r * columns + c);
      } else if (event.key === "Home") move(i, i - (i % columns));
      else if (event.key === "End") move(i, i - (i % columns) + columns - 1);
      else if (!edit(i, event.key)) return;
      event.preventDefault();
    });
    cells.push(cell);
  }
  board.press = (key) => edit(cells.findIndex((c) => c.getAttribute("tabindex") === "0"), key);
  return cells;
}

function addNodes(board, puzzle, onEdit) {
  board.svg.setAttribute("role", "group");
  let first = null;
  board.nodes.forEach((node, i) => {
    node.setAttribute("tabindex", "0");
    node.setAttribute("role", "button");
    node.setAttribute("aria-label", board.rows(null)[i]);
    el("circle", { class: "hit", r: 19 }, node);
    const choose = () => {
      if (first === null) { first = i; node.classList.add("chosen"); return; }
      if (first === i) { first = null; node.classList.remove("chosen"); return; }
      const rows = puzzle.split("/"), flipped = rows[i][first] === "1" ? "0" : "1";
      rows[i] = replaced(rows[i], first, flipped);
      rows[first] = replaced(rows[first], i, flipped);
      onEdit(rows.join("/"), i);
    };
    node.addEventListener("click", choose);
    node.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); }
    });
  });
  return board.nodes;
}
