// PNG files, chunk by chunk: a text of one's own in a picture, and several pictures bound into an animation.

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

export const bytesOf = async (canvas) => new Uint8Array(await (await new Promise((resolve) => canvas.toBlob(resolve, "image/png"))).arrayBuffer());

/** A picture that says in its own file what it shows (an iTXt chunk, in UTF-8). */
export function describedPng(bytes, description) {
  const parts = [bytes.slice(0, 8)];
  for (const [type, data] of chunksOf(bytes)) {
    if (type === "IDAT" && parts.length === 2) parts.push(chunk("iTXt", new TextEncoder().encode(`Description\0\0\0\0\0${description}`)));
    parts.push(chunk(type, data));
  }
  return new Blob(parts, { type: "image/png" });
}

/** The frames' own compressed pictures, bound into one file (the APNG part of the PNG standard, third edition). */
export function animatedPng(frames) {
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
