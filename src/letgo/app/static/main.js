// The page: a setting, a run, and a clock. Every change of the setting ends the run that it no longer describes.

import { get, post, stream } from "./api.js";
import { broken, decode, makeBoard } from "./boards.js";
import { byId, fillModels, fillRules, fillSettings, theme, wholeNumber } from "./controls.js";
import { blank, drawable, help, makeEditor, padKeys, tidy } from "./editor.js";
import { animation, save } from "./export.js";
import { Player } from "./player.js";
import { race } from "./race.js";
import { body, fit, read, titleOf, write } from "./setting.js";
import { makeSpark } from "./spark.js";

const SIDES = [0, 1];
let models = [], model, setting, boards = [], sparks = [], run = null, sampling = null, racing = null, checking = null;
const player = new Player(showStep);

const rateOf = (slider) => Math.round(4 * 2 ** Number(slider)) / 2; // 2 to 1024 steps a second
const cells = () => (model.kind === "graph" ? setting.puzzle.split("/").length ** 2 : model.cells);
const status = (text) => { byId("status").textContent = text; };
const speak = (text) => { byId("spoken").textContent = text; }; // for screen readers: the turning points, not every step
const problem = (text) => { byId("problem").textContent = text; };

// ---- the setting

function publish(ran = setting.run) {
  setting.run = ran;
  history.replaceState(null, "", write(setting));
}

function chooseModel(name, keep = {}) {
  model = models.find((m) => m.name === name);
  setting = {
    view: setting?.view ?? "x",
    ...keep,
    sides: fit(model, keep.sides ?? setting?.sides ?? [{}, {}]),
    model: model.name,
    puzzle: keep.puzzle ?? model.example.puzzle,
    steps: keep.steps ?? model.steps,
    seed: keep.seed ?? model.example.seed,
    run: false,
  };
  fillModels(models, model);
  fillForm();
  setPuzzle(setting.puzzle);
}

function fillForm() {
  byId("steps").value = setting.steps;
  byId("seed").value = setting.seed;
  const { regime } = model;
  byId("clues-label").hidden = regime.usual === null;
  byId("clues-name").textContent = model.kind === "graph" ? "Nodes of a random graph" : "Clues of a random puzzle";
  Object.assign(byId("clues"), { min: regime.fewest ?? 0, max: regime.most ?? 0, value: regime.usual ?? "" });
  byId("editor-help").textContent = help(model);
  document.querySelector(`input[name=view][value=${setting.view}]`).checked = true;
  fillSides();
}

function fillSides() {
  fillRules(model, setting.sides);
  for (const i of SIDES) {
    fillSettings(i, setting.sides[i], model, (name, value) => {
      setting.sides[i] = { ...setting.sides[i], [name]: value };
      discard();
    });
  }
}

/** The setting has changed: what is on show no longer belongs to it. */
function discard() {
  sampling?.abort();
  racing?.abort();
  run = null;
  byId("race-lanes").replaceChildren();
  byId("race-status").textContent = "";
  byId("race-progress").value = 0;
  byId("progress").value = 0;
  problem("");
  status("Ready.");
  for (const i of SIDES) { byId(`verdict-${i}`).replaceChildren(); byId(`verdict-${i}`).className = "verdict"; }
  publish(false);
  player.reset(setting.steps);
}

// ---- the puzzle

function setPuzzle(text, focus = null, fromText = false) {
  setting.puzzle = tidy(model, text);
  if (!fromText) byId("puzzle").value = setting.puzzle;
  if (drawable(model, setting.puzzle)) drawPuzzle(focus);
  discard();
  check();
}

function drawPuzzle(focus) {
  const editor = makeEditor(model, setting.puzzle, focus, (text, at) => setPuzzle(text, at));
  byId("editor").replaceChildren(editor.svg);
  byId("pad").replaceChildren(...padKeys(model).map(([key, textContent, name]) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent });
    button.setAttribute("aria-label", `Put ${name} into the chosen cell`);
    button.addEventListener("click", () => editor.press(key));
    return button;
  }));
  boards = SIDES.map((i) => {
    const board = makeBoard(model, setting.puzzle);
    board.words = document.createElement("p");
    board.words.className = "hidden";
    byId(`board-${i}`).replaceChildren(board.svg, board.words);
    return board;
  });
}

/** Asks the server what it makes of the puzzle; only the latest question counts. */
async function check() {
  checking?.abort();
  const mine = (checking = new AbortController()), message = byId("puzzle-message");
  try {
    const parsed = await post("/api/check", { model: setting.model, puzzle: setting.puzzle || " " }, mine.signal);
    message.className = "message";
    message.textContent = model.kind === "graph" ? `${Math.sqrt(parsed.cells)} nodes.` : model.kind === "maze" ? "" : `${parsed.clues} clue${parsed.clues === 1 ? "" : "s"}.`;
    byId("puzzle").setAttribute("aria-invalid", "false");
  } catch (error) {
    if (error.name === "AbortError") return;
    message.className = "message wrong";
    message.textContent = error.message;
    byId("puzzle").setAttribute("aria-invalid", "true");
  }
}

async function randomPuzzle() {
  try {
    const seed = crypto.getRandomValues(new Uint32Array(1))[0];
    const query = new URLSearchParams({ model: setting.model, seed });
    if (model.regime.usual !== null) query.set("regime", wholeNumber("clues", model.kind === "graph" ? "Nodes" : "Clues"));
    byId("puzzle-message").textContent = "Looking for one …";
    setPuzzle((await get(`/api/puzzle?${query}`)).puzzle);
  } catch (error) {
    byId("puzzle-message").className = "message wrong";
    byId("puzzle-message").textContent = error.message;
  }
}

// ---- a run

async function start() {
  discard();
  try {
    setting.steps = wholeNumber("steps", "Steps");
    setting.seed = wholeNumber("seed", "Seed");
  } catch (error) { return problem(error.message); }
  const mine = (sampling = new AbortController());
  const mineRun = (run = { opening: null, frames: [[], []], raw: [[], []], verdicts: [null, null], highest: 1, done: false });
  publish(true);
  player.reset(setting.steps);
  byId("run").textContent = "Stop";
  status("Waiting for a place …");
  speak("Sampling has begun.");
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (!calm) player.play();
  try {
    for await (const [name, data] of stream("/api/trajectory", body(setting), mine.signal)) {
      if (name === "start") mineRun.opening = data;
      else if (name === "frame") take(mineRun, data);
      else if (name === "verdict") mineRun.verdicts[data.side] = data;
    }
    mineRun.done = true;
    status(`Sampled ${setting.steps} steps with each rule.`);
    speak("Sampling has ended.");
    player.seek(calm ? setting.steps : player.step, player.playing);
  } catch (error) {
    if (error.name !== "AbortError") { problem(error.message); status("Stopped."); player.pause(); publish(false); }
  } finally {
    if (sampling === mine) { sampling = null; byId("run").textContent = "Run"; }
  }
}

function take(run, data) {
  run.frames[data.side].push(decode(data, cells()));
  run.raw[data.side].push(data);
  run.highest = Math.max(run.highest, data.xbad.length, data.pbad.length);
  const reached = Math.min(...run.frames.map((f) => f.length));
  player.extend(reached);
  byId("progress").value = reached / setting.steps;
  if (reached === run.frames[data.side].length) status(`Sampling: step ${reached} of ${setting.steps}`);
}

function showStep(step, playing) {
  const steps = setting?.steps ?? 1;
  Object.assign(byId("scrub"), { max: steps, value: step, disabled: !run });
  byId("where").textContent = run ? `step ${step} of ${steps}, t = ${(1 - step / steps).toFixed(3)}` : `${steps} steps`;
  byId("play").classList.toggle("playing", playing);
  byId("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  for (const id of ["first", "back", "play", "forward", "last", "save-json", "save-animation"]) byId(id).disabled = !run;
  if (!setting) return;
  for (const i of SIDES) showSide(i, step, playing);
  if (run?.done && player.arrived) showVerdicts();
}

function showSide(i, step, playing) {
  const board = boards[i], frame = run?.frames[i][step - 1] ?? null, { view } = setting;
  if (!board) return;
  board.draw(frame, view);
  const count = frame && (view === "p" ? frame.pcount : frame.xcount);
  const words = frame ? broken(model, count) : run ? "pure noise" : "";
  byId(`now-${i}`).textContent = words || "\u00a0";
  board.svg.setAttribute("aria-label", `${titleOf(setting.sides[i].rule)}, ${frame ? `step ${step}, ${broken(model, count)}` : "the puzzle"}`);
  if (!playing) board.words.textContent = board.rows(frame, view).join("; ");
  const frames = run?.frames[i] ?? [];
  const highest = Math.max(1, run?.highest ?? 1); // one scale for both sides
  sparks[i].draw(frames.slice(0, player.arrived ? undefined : step), setting.steps, view, highest);
  sparks[i].point(step, setting.steps);
}

function showVerdicts() {
  const said = SIDES.map((i) => {
    const { valid, violations, first_valid, steps, seconds, calls } = run.verdicts[i], box = byId(`verdict-${i}`);
    const head = valid ? "✓ A valid board" : `✕ Broken: ${broken(model, violations)}`;
    const found = valid ? `; the proposal was first valid at step ${first_valid}` : first_valid ? `, although the proposal was valid at step ${first_valid}` : "";
    const rest = `${steps} steps, ${calls} network calls, ${seconds.toFixed(2)} s${found}.`;
    box.className = `verdict ${valid ? "good" : "bad"}`;
    box.replaceChildren(Object.assign(document.createElement("b"), { textContent: head }), Object.assign(document.createElement("span"), { textContent: rest }));
    return `${titleOf(setting.sides[i].rule)}: ${head.slice(2)}.`;
  }).join(" ");
  if (byId("spoken").textContent !== said) speak(said);
}

async function startRace() {
  if (racing) return racing.abort();
  const mine = (racing = new AbortController());
  byId("race").textContent = "Stop the race";
  const progress = (share, text) => { byId("race-progress").value = share; byId("race-status").textContent = text; };
  try {
    const seed = wholeNumber("seed", "Seed"), steps = wholeNumber("steps", "Steps");
    const asked = { ...body(setting), seed, steps, count: wholeNumber("race-count", "Seeds") };
    await race(byId("race-lanes"), asked, mine.signal, watch, progress);
    speak([...document.querySelectorAll(".lane")].map((lane) => `${lane.querySelector("h3").textContent}: ${lane.querySelector(".figures").textContent}.`).join(" "));
  } catch (error) {
    byId("race-status").textContent = error.name === "AbortError" ? "Stopped." : error.message;
  } finally {
    if (racing === mine) { racing = null; byId("race").textContent = "Start the race"; }
  }
}

/** Show one seed of a race on the boards, and leave the race as it is. */
function watch(seed) {
  byId("seed").value = seed;
  const lanes = [...byId("race-lanes").children], text = byId("race-status").textContent, share = byId("race-progress").value;
  const kept = racing;
  racing = null;
  start();
  racing = kept;
  byId("race-lanes").replaceChildren(...lanes);
  byId("race-status").textContent = text;
  byId("race-progress").value = share;
  byId("stage").scrollIntoView({ block: "start" });
}

// ---- to take away

async function saveAnimation() {
  const at = player.step, note = byId("take-message");
  player.pause();
  if (!player.available) { note.textContent = "There is no step to draw yet."; return; }
  const captions = (i, step) => [titleOf(setting.sides[i].rule), `step ${step} of ${setting.steps} · ${broken(model, run.frames[i][step - 1].xcount)}`];
  const show = (step) => boards.forEach((board, i) => board.draw(run.frames[i][step - 1], setting.view));
  const progress = (share) => { note.textContent = `Drawing: ${Math.round(100 * share)}%`; };
  try {
    save(await animation(boards, player.available, show, captions, progress), `letgo-${setting.seed}.png`);
    note.textContent = "Saved; any browser plays it.";
  } catch (error) { note.textContent = `This browser could not draw it (${error.message}).`; }
  player.seek(at);
}

function saveJson() {
  const content = { ...run.opening, link: location.href, frames: run.raw, verdicts: run.verdicts };
  save(new Blob([JSON.stringify(content)], { type: "application/json" }), `letgo-${setting.seed}.json`);
  byId("take-message").textContent = "Saved.";
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    byId("take-message").textContent = "The link is on the clipboard.";
  } catch { byId("take-message").textContent = "Copy it from the address bar: it holds the whole setting."; }
}

// ---- wiring

function listen() {
  const on = (id, event, handler) => byId(id).addEventListener(event, handler);
  on("run", "click", () => { if (sampling) { sampling.abort(); status("Stopped."); player.pause(); } else start(); });
  on("race", "click", startRace);
  on("task", "change", (e) => chooseModel(models.find((m) => m.title === e.target.value).name));
  on("model", "change", (e) => { // the same puzzle, unless this model's boards have another size
    const { puzzle, seed } = setting;
    chooseModel(e.target.value, drawable(models.find((m) => m.name === e.target.value), puzzle) ? { puzzle, seed } : {});
  });
  on("example", "click", () => { byId("seed").value = setting.seed = model.example.seed; setPuzzle(model.example.puzzle); });
  on("random", "click", randomPuzzle);
  on("clear", "click", () => setPuzzle(blank(model, setting.puzzle)));
  on("puzzle", "input", (e) => setPuzzle(e.target.value, null, true));
  for (const id of ["steps", "seed"]) {
    on(id, "change", () => {
      try { setting[id] = wholeNumber(id, id === "steps" ? "Steps" : "Seed"); discard(); } catch (error) { problem(error.message); }
    });
  }
  for (const i of SIDES) on(`rule-${i}`, "change", (e) => { setting.sides[i] = { rule: e.target.value }; fillSides(); discard(); });
  for (const input of document.querySelectorAll("input[name=view]")) {
    input.addEventListener("change", () => { setting.view = input.value; publish(); showStep(player.step, player.playing); });
  }
  on("play", "click", () => (player.playing ? player.pause() : player.play()));
  on("first", "click", () => player.seek(0));
  on("back", "click", () => player.seek(player.step - 1));
  on("forward", "click", () => player.seek(player.step + 1));
  on("last", "click", () => player.seek(player.available));
  on("scrub", "input", (e) => player.seek(Number(e.target.value)));
  on("speed", "input", speed);
  on("save-json", "click", saveJson);
  on("save-animation", "click", saveAnimation);
  on("link", "click", copyLink);
  on("to-setup", "click", () => byId("setup").scrollIntoView());
  document.querySelector(".skip").addEventListener("click", (e) => { e.preventDefault(); byId("stage").focus(); }); // the hash is taken
  addEventListener("hashchange", () => {
    if (location.hash.includes("model=")) restore(read(location.hash));
    else publish(); // the setting has no link of its own yet
  });
}

function speed() {
  player.rate = rateOf(byId("speed").value);
  byId("speed-value").textContent = `${player.stepsPerSecond.toFixed(player.stepsPerSecond < 10 ? 1 : 0)} steps/s`;
}

/** A setting from a link; a link that was made after a run runs again. */
function restore(linked, fallback) {
  const known = models.some((m) => m.name === linked.model);
  const { sides } = linked, view = ["x", "p", "both"].includes(linked.view) ? linked.view : "x";
  setting = { sides, view };
  chooseModel(known ? linked.model : fallback ?? models[0].name, known ? { ...linked, view } : { sides, view });
  if (linked.model && !known) problem(`The link asks for the model '${linked.model}', which this server does not offer.`);
  else if (linked.run) start();
}

async function open() {
  theme();
  sparks = SIDES.map((i) => makeSpark(byId(`spark-${i}`)));
  const linked = read(location.hash);
  speed();
  showStep(0, false);
  byId("run").disabled = byId("race").disabled = true;
  try {
    const [list, health] = await Promise.all([get("/api/models"), get("/api/health")]);
    models = list.models;
    const failed = Object.entries(list.failed).map(([name, why]) => `${name} cannot be read and is left out: ${why}.`).join(" ");
    byId("version").textContent = `letgo ${health.version}.`;
    byId("steps").max = health.limits.steps;
    byId("race-count").max = health.limits.seeds;
    if (!models.length) throw new Error(`This server has no models. Start it with \`letgo app --model RUN\`. ${failed}`);
    listen();
    byId("run").disabled = byId("race").disabled = false;
    restore(linked, list.default);
    if (failed) problem(failed);
  } catch (error) {
    status("");
    problem(error.message);
  }
}

open();
