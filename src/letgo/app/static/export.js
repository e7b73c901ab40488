// Pictures of a run: one step as SVG or PNG, the whole as an animated PNG or GIF. Made here, without a server; the page
// fetches this file when a picture is first asked for.

import { makeBoard, shown } from "./boards.js";
import { animatedGif } from "./gif.js";
import { animatedPng, bytesOf, describedPng } from "./png.js";
import { titleOf } from "./setting.js";

const COPIED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-size", "font-weight",
  "font-family", "text-anchor", "dominant-baseline", "display"];

/** A copy of a board that needs no page: the styles that the page gives it are written into it. */
function styled(svg, size) {
  const copy = svg.cloneNode(true), from = svg.querySelectorAll("*"), to = copy.querySelectorAll("*");
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of COPIED) to[i].setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("width", size);
  copy.setAttribute("height", size);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return copy;
}

async function picture(blob) {
  const image = new Image(), url = URL.createObjectURL(blob);
  image.src = url;
  try { await image.decode(); } finally { URL.revokeObjectURL(url); }
  return image;
}

/** Both boards of one step, as one SVG with titles, seed and curves. */
export function stepPicture(run, boards, step, view) {
  const size = 360, gap = 24, top = 58, low = 90, width = 2 * size + 3 * gap, height = top + size + low;
  const style = getComputedStyle(document.body), ink = style.color, key = `${shown(view)}count`;
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const sides = boards.map((board, i) => {
    const left = gap + i * (size + gap), copy = styled(board.svg, size), frames = run.frames[i].slice(0, Math.max(1, step)), high = run.highest(key);
    copy.setAttribute("x", left);
    copy.setAttribute("y", top);
    const points = frames.map((f) => `${(left + (size * f.step) / run.steps).toFixed(1)},${(top + size + 60 - (44 * f[key]) / high).toFixed(1)}`).join(" ");
    const { model, rule } = run.setting.sides[i];
    return `<text x="${left}" y="28" font-size="19" font-weight="600" fill="${ink}">${escaped(`${titleOf(rule)}, ${model ?? run.setting.model}`)}</text>`
      + `<text x="${left}" y="48" font-size="14" fill="${ink}">step ${step} of ${run.steps}, seed ${run.setting.seed}</text>`
      + new XMLSerializer().serializeToString(copy) + `<polyline points="${points}" fill="none" stroke="${ink}" stroke-width="1.5"/>`
      + `<text x="${left}" y="${top + size + 78}" font-size="12" fill="${ink}">cells that break a rule</text>`;
  });
  const text = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="sans-serif"><rect width="${width}" height="${height}" fill="${style.backgroundColor}"/>${sides.join("")}</svg>`;
  return new Blob([text], { type: "image/svg+xml" });
}

/** The same as a PNG, at twice the size; what it shows is written into the file as well. */
export async function stepPng(run, boards, step, view, description) {
  const image = await picture(stepPicture(run, boards, step, view)), canvas = Object.assign(document.createElement("canvas"), { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return describedPng(await bytesOf(canvas), description);
}

/** Draws both sides of a run at chosen steps, on boards of its own: the page may go on meanwhile. */
export async function animation(kind, run, puzzle, view, symbols, captions, progress) {
  const size = 360, gap = 24, top = 58, width = 2 * size + 3 * gap, height = top + size + gap, steps = run.reached;
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: kind === "gif" }), page = getComputedStyle(document.documentElement);
  const colour = (name) => { context.fillStyle = getComputedStyle(document.querySelector(name)).color; };
  const background = getComputedStyle(document.body).backgroundColor;
  const holder = document.createElement("div"), boards = run.frames.map(() => makeBoard(run.card, puzzle));
  holder.className = "offstage";
  holder.setAttribute("aria-hidden", "true");
  holder.append(...boards.map((board) => board.svg));
  document.body.append(holder);
  const every = Math.max(1, Math.ceil(steps / 60)), wanted = [], frames = [];
  for (let step = 1; step < steps; step += every) wanted.push(step);
  try {
    for (const step of [...wanted, steps]) {
      context.fillStyle = background;
      context.fillRect(0, 0, width, height);
      for (const [i, board] of boards.entries()) {
        const left = gap + i * (size + gap), frame = run.frames[i][step - 1], [title, note] = captions(i, frame);
        board.draw(frame, view, { ...run.beside(i, step), symbols });
        colour("body");
        context.font = `600 19px ${page.getPropertyValue("--serif")}`;
        context.fillText(title, left, 26, size);
        colour(".hint");
        context.font = `14px ${page.getPropertyValue("--sans")}`;
        context.fillText(note, left, 47, size);
        context.drawImage(await picture(new Blob([new XMLSerializer().serializeToString(styled(board.svg, size))], { type: "image/svg+xml" })), left, top);
      }
      const delay = step === steps ? 2500 : 80;
      frames.push(kind === "gif" ? { pixels: context.getImageData(0, 0, width, height).data, delay } : { bytes: await bytesOf(canvas), delay });
      progress(frames.length / (wanted.length + 1));
    }
  } finally { holder.remove(); }
  return kind === "gif" ? animatedGif(frames, width, height) : animatedPng(frames);
}
