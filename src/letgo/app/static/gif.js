// An animated GIF (GIF89a): one palette of the 255 commonest colours, and of each frame only the pixels that changed.

const SAME = 255; // the palette's last place: what was there stays

/** A colour in 15 bits, five for each of red, green and blue. */
const coarse = (pixels, i) => ((pixels[i] >> 3) << 10) | ((pixels[i + 1] >> 3) << 5) | (pixels[i + 2] >> 3);

/** Mean colours of the commonest coarse ones, and for each coarse colour in use the nearest of them. */
function palette(frames) {
  const count = new Uint32Array(32768), sums = [0, 1, 2].map(() => new Float64Array(32768));
  for (const { pixels } of frames) for (let i = 0; i < pixels.length; i += 4) {
    const c = coarse(pixels, i);
    count[c] += 1;
    for (let k = 0; k < 3; k++) sums[k][c] += pixels[i + k];
  }
  const used = [...count.keys()].filter((c) => count[c]).sort((a, b) => count[b] - count[a]);
  const mean = (c) => sums.map((sum) => Math.round(sum[c] / count[c])), colours = used.slice(0, SAME).map(mean), nearest = new Uint8Array(32768);
  used.forEach((c, rank) => {
    if (rank < SAME) { nearest[c] = rank; return; }
    const own = mean(c), far = (other) => own.reduce((sum, value, k) => sum + (value - other[k]) ** 2, 0);
    nearest[c] = colours.reduce((best, other, k) => (far(other) < far(colours[best]) ? k : best), 0);
  });
  return { colours, nearest };
}

/** LZW with codes of 9 to 12 bits, as GIF wants it. */
function compress(places) {
  const next = new Int16Array(4096 * 256), bytes = [];
  let size = 9, free = 258, held = 0, bits = 0, code = places[0];
  const put = (value) => {
    held |= value << bits;
    for (bits += size; bits >= 8; bits -= 8) { bytes.push(held & 255); held >>>= 8; }
  };
  put(256);
  for (let i = 1; i < places.length; i++) {
    const key = (code << 8) | places[i];
    if (next[key]) { code = next[key]; continue; }
    put(code);
    if (free < 4096) { if (free === 1 << size) size += 1; next[key] = free++; } else { put(256); next.fill(0); size = 9; free = 258; }
    code = places[i];
  }
  put(code);
  put(257);
  if (bits) bytes.push(held & 255);
  return bytes;
}

const short = (value) => [value & 255, value >> 8];

/** `frames` have `pixels` (RGBA, opaque) and `delay` in milliseconds; it plays for ever. */
export async function animatedGif(frames, width, height) {
  const { colours, nearest } = palette(frames), table = [...colours, ...Array(256 - colours.length).fill([0, 0, 0])].flat();
  const text = (letters) => Array.from(letters, (c) => c.charCodeAt(0));
  const parts = [Uint8Array.from([...text("GIF89a"), ...short(width), ...short(height), 0xf7, 0, 0, ...table, 0x21, 0xff, 11, ...text("NETSCAPE2.0"), 3, 1, 0, 0, 0])];
  let before = new Uint8Array(width * height).fill(SAME);
  for (const { pixels, delay } of frames) {
    const now = before.map((_, i) => nearest[coarse(pixels, 4 * i)]), changed = now.map((place, i) => (place === before[i] ? SAME : place));
    before = now;
    const data = compress(changed), blocks = [];
    for (let at = 0; at < data.length; at += 255) { const block = data.slice(at, at + 255); blocks.push(block.length, ...block); }
    parts.push(Uint8Array.from([0x21, 0xf9, 4, 0b101, ...short(Math.round(delay / 10)), SAME, 0, 0x2c, 0, 0, 0, 0, ...short(width), ...short(height), 0, 8]), Uint8Array.from(blocks), Uint8Array.of(0));
    await new Promise((go) => setTimeout(go)); // the page stays alive
  }
  return new Blob([...parts, Uint8Array.of(0x3b)], { type: "image/gif" });
}
