// A run as one HTML file that needs no server: the template, its style, its script and the run.

import { clues } from "./boards.js";
import { sideName, verdict } from "./words.js";

export async function replay(run, check) {
  const [page, style, script] = await Promise.all(["replay.html", "replay.css", "replay.js"].map(async (name) => (await fetch(name)).text()));
  const { card, setting, steps } = run, n = Math.round(Math.sqrt(run.frames[0][0].p.length));
  const graph = card.kind === "graph", digit = (symbol) => (symbol < 36 ? symbol.toString(36) : "?");
  const data = {
    title: `${setting.model}, seed ${setting.seed}`, sides: setting.sides.map((_, i) => sideName(setting, i)), kind: card.kind, box: card.box, steps: run.reached,
    rows: graph ? n : card.rows, columns: graph ? n : card.columns, letters: Array.from(card.letters), given: clues(card, setting.puzzle) ?? Array(n * n).fill(null),
    frames: run.frames.map((frames) => frames.map((f) => ({ x: f.p.map(digit).join(""), c: f.pc.map(digit).join(""), bad: [...f.pbad.keys()].filter((i) => f.pbad[i]) }))),
  };
  if (run.state === "done") data.why = run.verdicts.map((_, i) => { const { head, why } = verdict(run, i, check); return [head, why].filter(Boolean).join(". "); });
  const put = (text, name, what) => text.split(`/*${name}*/`).join(what);
  const safe = JSON.stringify(data).replaceAll("<", "\\u003c");
  return new Blob([put(put(put(put(page, "STYLE", style), "NAME", ""), "SCRIPT", script), "RUN", safe)], { type: "text/html" });
}
