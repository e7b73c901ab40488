// What can be taken away: copied to the clipboard, or saved as a file.

import { shown } from "./boards.js";
import { byId } from "./controls.js";
import { drawn } from "./editor.js";
import { animation, stepPicture, stepPng } from "./export.js";
import { replay } from "./replay-page.js";
import { stepsOf } from "./setting.js";
import { state } from "./state.js";
import { asCommand, asPython, boardText } from "./take.js";
import { broken, sideName } from "./words.js";

const note = (text) => { byId("take-message").textContent = text; };

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function copy(text, done, otherwise = "This browser does not let a page copy.") {
  try {
    await navigator.clipboard.writeText(text);
    note(done);
  } catch { note(otherwise); }
}

/** Saves what `made` gives, or says why there is nothing. */
async function saved(made, ending, words) {
  const { seed } = state.run.setting;
  try {
    save(await made(), `letgo-${seed}${ending}`);
    note(words);
  } catch (error) { note(`This browser could not draw it (${error.message}).`); }
}

function film(kind) {
  const { run, setting: { view, cells } } = state, key = `${shown(view)}count`;
  const captions = (i, frame) => [sideName(run.setting, i), `step ${frame.step} of ${run.steps} · ${broken(run.card, frame[key])}`];
  return animation(kind, run, drawn(run.card, run.setting.puzzle), view, cells === "symbols", captions, (share) => note(`Drawing: ${Math.round(100 * share)}%`));
}

function asJson() {
  const { run } = state, content = { ...run.opening, link: location.href, frames: run.raw, verdicts: run.verdicts };
  return new Blob([JSON.stringify(content)], { type: "application/json" });
}

/** Wires the buttons; `boards` and `step` say what is on show. */
export function takeAway(on, boards, step) {
  const steps = () => stepsOf(state.setting, state.models), view = () => state.setting.view;
  const described = () => `letgo: ${state.run.setting.model}, seed ${state.run.setting.seed}, step ${step()} of ${state.run.steps}; ${location.href}`;
  on("link", () => copy(location.href, "The link is on the clipboard.", "Copy it from the address bar: it holds the whole setting."));
  on("copy-board", () => copy(boardText(state.run), "The solution is on the clipboard."));
  on("copy-command", () => copy(asCommand(state.setting, steps()), "The command is on the clipboard.", asCommand(state.setting, steps())));
  on("copy-python", () => copy(asPython(state.setting, steps()), "The Python is on the clipboard."));
  on("save-page", () => saved(() => replay(state.run, state.check), ".html", "Saved: one file that plays anywhere."));
  on("save-gif", () => saved(() => film("gif"), ".gif", "Saved; it plays nearly everywhere."));
  on("save-animation", () => saved(() => film("png"), ".png", "Saved; any browser plays it."));
  on("save-json", () => saved(asJson, ".json", "Saved."));
  on("save-png", () => saved(() => stepPng(state.run, boards(), step(), view(), described()), `-step-${step()}.png`, "Saved."));
  on("save-frame", () => saved(() => stepPicture(state.run, boards(), step(), view()), `-step-${step()}.svg`, "Saved."));
}
