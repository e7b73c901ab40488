// What can be taken away: the run as JSON, and as an animated PNG that any browser plays. Made here, without a server.

import { makeBoard } from "./boards.js";

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

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

async function picture(svg, size) {
  const copy = styled(svg, size);
  const image = new Image(size, size);
  const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
  image.src = url;
  try { await image.decode(); } finally { URL.revokeObjectURL(url); }
  return image;
}

/** Both boards of one step, as one SVG with titles, seed and curves. */
export function stepPicture(run, boards, step, view) {
  const size = 360, gap = 24, top = 58, low = 90, width = 2 * size + 3 * gap, height = top + size + low;
  const style = getComputedStyle(document.body), ink = style.color, key = view === "x" || view === "both" ? "xcount" : "pcount";
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const sides = boards.map((board, i) => {
    const left = gap + i * (size + gap), copy = styled(board.svg, size), frames = run.frames[i].slice(0, Math.max(1, step)), high = run.highest(key);
    copy.setAttribute("x", left);
    copy.setAttribute("y", top);
    const points = frames.map((f) => `${(left + (size * f.step) / run.steps).toFixed(1)},${(top + size + 60 - (44 * f[key]) / high).toFixed(1)}`).join(" ");
    const { model, rule } = run.setting.sides[i];
    return `<text x="${left}" y="28" font-size="19" font-weight="600" fill="${ink}">${escaped(`${rule}, ${model ?? run.setting.model}`)}</text>`
      + `<text x="${left}" y="48" font-size="14" fill="${ink}">step ${step} of ${run.steps}, seed ${run.setting.seed}</text>`
      + new XMLSerializer().serializeToString(copy) + `<polyline points="${points}" fill="none" stroke="${ink}" stroke-width="1.5"/>`
      + `<text x="${left}" y="${top + size + 78}" font-size="12" fill="${ink}">cells that break a rule</text>`;
  });
  const text = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="sans-serif"><rect width="${width}" height="${height}" fill="${style.backgroundColor}"/>${sides.join("")}</svg>`;
  return new Blob([text], { type: "image/svg+xml" });
}

/** Draws both sides of a run at chosen steps, on boards of its own: the page may go on meanwhile. */
export async function animation(run, puzzle, view, captions, progress) {
  const size = 360, gap = 24, top = 58, width = 2 * size + 3 * gap, height = top + size + gap, steps = run.reached;
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d"), page = getComputedStyle(document.documentElement);
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
        board.draw(frame, view, { steps: run.steps });
        colour("body");
        context.font = `600 19px ${page.getPropertyValue("--serif")}`;
        context.fillText(title, left, 26, size);
        colour(".hint");
        context.font = `14px ${page.getPropertyValue("--sans")}`;
        context.fillText(note, left, 47, size);
        context.drawImage(await picture(board.svg, size), left, top);
      }
      const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
      frames.push({ bytes: new Uint8Array(await blob.arrayBuffer()), delay: step === steps ? 2500 : 80 });
      progress(frames.length / (wanted.length + 1));
    }
  } finally { holder.remove(); }
  return animatedPng(frames);
}

const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
  return c >>> 0;
});

function crc32(bytes) {
  let c = 0xffffffff;
  for (const b of bytes) c = TABLE[(c ^ b) & 255] ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}

function chunk(type, data) {
  const bytes = new Uint8Array(12 + data.length), view = new DataView(bytes.buffer);
  view.setUint32(0, data.length);
  bytes.set(new TextEncoder().encode(type), 4);
  bytes.set(data, 8);
  view.setUint32(8 + data.length, crc32(bytes.subarray(4, 8 + data.length)));
  return bytes;
}

function* chunksOf(png) {
  const view = new DataView(png.buffer);
  for (let at = 8; at < png.length;) {
    const length = view.getUint32(at);
    yield [String.fromCharCode(...png.subarray(at + 4, at + 8)), png.subarray(at + 8, at + 8 + length)];
    at += 12 + length;
  }
}

const words = (size, ...writes) => {
  const view = new DataView(new ArrayBuffer(size));
  for (const [bits, at, value] of writes) bits === 32 ? view.setUint32(at, value) : view.setUint16(at, value);
  return new Uint8Array(view.buffer);
};

/** The frames' own compressed pictures, bound into one file (the APNG part of the PNG standard, third edition). */
function animatedPng(frames) {
  const header = [...chunksOf(frames[0].bytes)].find(([type]) => type === "IHDR")[1];
  const size = new DataView(header.buffer, header.byteOffset), width = size.getUint32(0), height = size.getUint32(4);
  const parts = [frames[0].bytes.slice(0, 8), chunk("IHDR", header), chunk("acTL", words(8, [32, 0, frames.length], [32, 4, 0]))];
  let number = 0;
  frames.forEach(({ bytes, delay }, i) => {
    parts.push(chunk("fcTL", words(26, [32, 0, number++], [32, 4, width], [32, 8, height], [16, 20, delay], [16, 22, 1000])));
    for (const [type, data] of chunksOf(bytes)) {
      if (type !== "IDAT") continue;
      if (i === 0) { parts.push(chunk("IDAT", data)); continue; }
      const numbered = new Uint8Array(4 + data.length);
      new DataView(numbered.buffer).setUint32(0, number++);
      numbered.set(data, 4);
      parts.push(chunk("fdAT", numbered));
    }
  });
  parts.push(chunk("IEND", new Uint8Array()));
  return new Blob(parts, { type: "image/png" });
}
