// The page. There is one state (state.js) and one way to a new setting (`change`), which ends what it no longer describes.

import { get, post, stream } from "./api.js";
import { takeAway } from "./away.js";
import { clues, makeBoard, shown } from "./boards.js";
import { cellPanel, probabilities } from "./cell.js";
import { byId, checkSettings, fillModels, fillSides, make, theme, wholeNumber } from "./controls.js";
import { blank, drawable, drawn, help, makeEditor, named, padKeys, tidy } from "./editor.js";
import { Player } from "./player.js";
import { Race } from "./race.js";
import { Run } from "./run.js";
import { body, fresh, raceKey, read, runKey, sameBoards, settle, sideCard, stepsOf, write } from "./setting.js";
import { makeSpark } from "./spark.js";
import { Until } from "./sure.js";
import { card, state } from "./state.js";
import * as story from "./story.js";
import { say } from "./svg.js";
import { Tour } from "./tour.js";
import { broken, lasting, many, measured, question, sideName, telling, verdict } from "./words.js";

const SIDES = [0, 1], CALM = matchMedia("(prefers-reduced-motion: reduce)");
const page = { examples: [], boards: [], drawn: null, sparks: [], check: null, version: 0, models: new Map(), recording: null, wanted: null, arrived: null };
const player = new Player(showStep);
const until = new Until({ change, problem, checked: () => page.checked, calm: () => CALM.matches });
const tour = new Tour({ seek: (step) => player.seek(step), render: () => showStep(player.step, player.playing) });

const status = (text) => { byId("status").textContent = text; };
const speak = (text) => { byId("spoken").textContent = text; }; // for screen readers: the turning points, not every step
const steps = () => stepsOf(state.setting, state.models);

function problem(text) {
  state.problem = text;
  byId("problem").textContent = text;
}

// ---- the one way in

/** A new setting: whatever it no longer describes ends, and everything on show follows. */
function change(patch, { focus = null, typed = false, linked = false } = {}) {
  const before = state.setting;
  const next = settle({ ...before, ...patch }, state.models);
  const moved = !before || next.model !== before.model || next.puzzle !== before.puzzle;
  state.setting = next;
  if (state.run && state.run.key !== runKey(next, state.models)) endRun();
  if (state.race && state.race.key !== raceKey(next, state.models)) endRace();
  until.follow(next);
  if (!state.run && !("run" in patch)) next.run = false;
  if (moved) { page.version += 1; page.models.set(card().title, next.model); }
  problem("");
  if (!linked) publish();
  render(focus, typed);
  if (moved) check();
}

const publish = () => history.replaceState(null, "", write(state.setting, state.models));

function endRun() {
  state.run?.stream?.abort();
  state.run = state.cell = null;
  byId("cell-row").value = byId("cell-column").value = "";
  tour.end();
  speak("");
  player.load(steps());
}

function endRace() {
  state.race.stream?.abort();
  state.race = state.setting.race = null;
}

// ---- what follows from the state

function render(focus, typed) {
  const { setting, models } = state, chosen = card();
  fillModels(models, chosen);
  fillSides(models, chosen, setting, (i, name, value) => change({ sides: setting.sides.map((side, j) => (i === j ? { ...side, [name]: value } : side)) }), problem);
  for (const [id, value] of [["steps", steps()], ["seed", setting.seed]]) if (document.activeElement !== byId(id)) byId(id).value = value;
  const { regime } = chosen;
  byId("clues-label").hidden = regime.usual === null;
  byId("clues-name").textContent = chosen.kind === "graph" ? "Nodes of a random graph" : "Clues of a random puzzle";
  if (byId("clues").of !== chosen.name) Object.assign(byId("clues"), { of: chosen.name, min: regime.fewest ?? 0, max: regime.most ?? 0, value: regime.usual ?? "" });
  byId("editor-help").textContent = help(chosen);
  byId("marks-label").hidden = chosen.kind !== "grid";
  const pictured = SIDES.some((i) => sideCard(setting, models, i).image);
  byId("images-label").hidden = !pictured;
  byId("images").checked = setting.cells === "images";
  byId("stage").classList.toggle("broad", pictured && setting.cells === "images" && chosen.columns > 6); // on a telephone: one board above the other
  if (chosen.kind !== "grid" && setting.view === "marks") setting.view = "p";
  document.querySelector(`input[name=view][value=${setting.view}]`).checked = true;
  byId("undo").disabled = !state.undo.length;
  if (!typed) byId("puzzle").value = setting.puzzle;
  renderPuzzle(focus);
  renderRun();
  renderRace();
  until.render();
}

/** The editor and both boards, made anew where the puzzle or the model has changed. */
function renderPuzzle(focus) {
  const chosen = card(), text = drawn(chosen, state.setting.puzzle), key = JSON.stringify([chosen.name, text, state.check?.detail]);
  if (page.drawn === key) return;
  page.drawn = key;
  const editor = makeEditor(byId("editor"), chosen, text, focus, (puzzle, at) => edit(puzzle, { focus: at }));
  editor.draw(null, "p", { marked: named(chosen, state.check?.detail ?? "") });
  byId("pad").replaceChildren(...padKeys(chosen).map(([key, textContent, name]) => {
    const button = make("button", { type: "button", textContent, ariaLabel: `Put ${name} into the chosen cell` });
    button.addEventListener("click", () => editor.press(key));
    return button;
  }));
  page.boards = SIDES.map((i) => {
    const board = makeBoard(chosen, text);
    board.words = make("p", { className: "hidden" });
    board.svg.addEventListener("click", (event) => follow(cellAt(board, chosen, event)));
    byId(`board-${i}`).replaceChildren(board.svg, board.words);
    return board;
  });
}

function renderRun() {
  const { run } = state, live = run?.state === "waiting" || run?.state === "sampling";
  byId("run").textContent = live ? "Stop" : "Run";
  byId("progress").value = run ? run.reached / run.steps : 0;
  if (!run) status(state.ready ? "Ready." : "Loading the models …");
  else if (run.recorded) status(`Recorded, seed ${run.setting.seed}. ${state.ready ? "Run plays it live." : "The models are loading."}`);
  else status({
    waiting: "Waiting for a place …", sampling: `Sampling: step ${run.reached} of ${run.steps}`,
    done: `Sampled ${many(run.steps, "step")} on each side.`, stopped: `Stopped after ${run.reached} of ${many(run.steps, "step")}.`,
  }[run.state]);
  showStep(player.step, player.playing);
  renderCell();
}

function renderRace() {
  const { race } = state, live = Boolean(race?.stream);
  const roots = race ? race.lanes.map((lane) => lane.root) : [], holder = byId("race-lanes");
  if (holder.children.length !== roots.length || roots.some((root, i) => holder.children[i] !== root)) holder.replaceChildren(...roots);
  byId("race").textContent = live ? "Stop the race" : "Start the race";
  byId("race-progress").value = race?.share ?? 0;
  byId("race-status").textContent = race?.words ?? "";
  const names = SIDES.map((i) => sideName(state.setting, i)), told = race && SIDES.map((i) => race.told(i));
  const example = page.examples.find((one) => exampleKey(one) === runKey({ ...state.setting, seed: one.seed }, state.models));
  byId("measured").textContent = page.examples.length ? measured(example, names) : "\u00a0"; // its lines are kept free until they come
  if (document.activeElement !== byId("chosen")) byId("chosen").value = state.ready ? (example?.title ?? "") : "";
  byId("race-vary").value = state.setting.vary;
  byId("question").textContent = question(state.setting);
  byId("answer").textContent = told?.every(Boolean) ? `${names[0]} ${told[0]}; ${names[1]} ${told[1]}.` : state.setting.sure ? "It looks at its own board again. Below that, as for every model: two samplers, side by side." : "Run shows one seed; the race below shows how often each side ends in a valid board.";
  renderCost();
}

function exampleKey({ model, puzzle, sides, seed }) {
  const own = state.models.find((m) => m.name === model);
  return own ? runKey(settle({ ...fresh(), model, puzzle: puzzle ?? own.example.puzzle, sides, seed }, state.models), state.models) : null;
}

/** What a race will take, before it starts. */
function renderCost() {
  const count = Number(byId("race-count").value) || 0, last = state.run?.verdicts, calls = SIDES.reduce((sum, i) => sum + count * steps() * (state.setting.sides[i].rule === "heun" ? 2 : 1), 0);
  const seconds = last?.every(Boolean) && !state.run.recorded ? count * last.reduce((sum, v) => sum + v.seconds, 0) : null;
  byId("race-cost").textContent = `${2 * count} boards, ${calls.toLocaleString("en")} network calls${seconds === null ? "" : `: about ${lasting(seconds)} at the pace of the last run`}.`;
}

// ---- the puzzle

function edit(text, options) {
  const puzzle = tidy(card(), text);
  if (puzzle !== state.setting.puzzle) { state.undo.push(state.setting.puzzle); state.check = null; page.asked = text; }
  change({ puzzle }, options);
}

function undo() {
  const puzzle = state.undo.pop();
  if (puzzle === undefined) return;
  state.check = null;
  page.asked = puzzle;
  change({ puzzle });
}

/** Asks the server what it makes of the puzzle; only the latest question counts. */
function check() {
  page.check?.abort();
  state.check = null;
  const mine = (page.check = new AbortController()), version = page.version, { model, puzzle } = state.setting;
  const odd = page.asked && tidy(card(), page.asked) === puzzle && (!drawable(card(), puzzle) || /[\t,;]/.test(page.asked));
  const typed = odd ? page.asked : puzzle; // the server reads more ways of writing a puzzle than the page
  page.asked = null;
  if (!state.ready) { page.checked = Promise.resolve(); return; }
  page.checked = post("/api/check", { model, puzzle: typed.slice(0, 4096) || " ", report: true }, mine.signal).then((parsed) => {
    if (page.version !== version) return;
    state.check = parsed;
    if (!parsed.detail && parsed.puzzle !== puzzle) change({ puzzle: parsed.puzzle }, { typed: document.activeElement === byId("puzzle") });
    renderCheck();
  }).catch((error) => { if (error.name !== "AbortError") renderCheck(error.message); });
}

const SOLUTIONS = ["No solution: no sampler can end in a valid board.", "Exactly one solution.", "More than one solution."];

function renderCheck(failure) {
  const parsed = state.check, message = byId("puzzle-message"), { kind } = card(), wrong = failure ?? parsed?.detail;
  message.className = wrong ? "message wrong" : "message";
  message.textContent = wrong ?? (kind === "graph" ? `${Math.sqrt(parsed.cells)} nodes.` : kind === "maze" ? "" : `${parsed.clues} clue${parsed.clues === 1 ? "" : "s"}.`);
  byId("puzzle").setAttribute("aria-invalid", String(Boolean(wrong)));
  byId("solutions").textContent = SOLUTIONS[parsed?.solutions] ?? "";
  byId("solutions").className = parsed?.solutions === 0 ? "message wrong" : "message";
  const focus = byId("editor").contains(document.activeElement) ? Number(document.activeElement.dataset.cell ?? NaN) : NaN;
  renderPuzzle(Number.isNaN(focus) ? null : focus);
  renderRun();
}

async function randomPuzzle() {
  const version = page.version, chosen = card(), message = byId("puzzle-message");
  try {
    const seed = crypto.getRandomValues(new Uint32Array(1))[0];
    const query = new URLSearchParams({ model: chosen.name, seed });
    if (chosen.regime.usual !== null) query.set("regime", wholeNumber("clues", chosen.kind === "graph" ? "Nodes" : "Clues"));
    message.textContent = "Looking for one …";
    const found = await get(`/api/puzzle?${query}`);
    if (page.version === version) edit(found.puzzle); // else it was asked for another model or puzzle
  } catch (error) {
    if (page.version !== version) return;
    message.className = "message wrong";
    message.textContent = error.message;
  }
}

// ---- a run

async function start() {
  if (!state.ready) { page.wanted = "run"; status("Runs as soon as the models are there …"); return; }
  let numbers;
  try { checkSettings(); numbers = { steps: wholeNumber("steps", "Steps"), seed: wholeNumber("seed", "Seed") }; } catch (error) { return problem(error.message); }
  change({ ...numbers, run: true });
  endRun();
  const { setting, models } = state, chosen = card(), stream_ = new AbortController();
  const run = (state.run = new Run(runKey(setting, models), structuredClone(setting), chosen, steps(), clues(chosen, setting.puzzle)?.map((clue) => clue !== null)));
  run.stream = stream_;
  player.load(run.steps);
  if (!CALM.matches) player.play();
  renderRun();
  speak("Sampling has begun.");
  await page.checked;
  if (state.run !== run) return;
  if (state.check?.detail) return failRun(run, state.check.detail);
  try {
    for await (const [name, data] of stream("/api/trajectory", body(setting, models), stream_.signal)) {
      if (state.run !== run) return;
      run.take(name, data);
      if (name === "frame") follows(run, data.side);
    }
    if (state.run !== run) return;
    speak("Sampling has ended.");
    player.end();
    if (CALM.matches) player.seek(run.steps);
    renderRun();
    renderCost();
  } catch (error) {
    if (error.name !== "AbortError" && state.run === run) failRun(run, error.message);
  }
}

/** After a frame: the clock may go on, and every few the words change. */
function follows(run, side) {
  const reached = run.reached;
  if (reached !== run.frames[side].length) return;
  player.extend(reached);
  byId("progress").value = reached / run.steps;
  status(`Sampling: step ${reached} of ${run.steps}`);
}

/** A run that broke off keeps the steps that it has; one without any goes. */
function failRun(run, words) {
  if (run.reached === 0) { endRun(); state.setting.run = false; publish(); renderRun(); } else stopRun();
  problem(words);
}

function stopRun() {
  const { run } = state;
  if (run.reached === 0) { endRun(); return renderRun(); }
  run.stream?.abort();
  run.state = "stopped";
  player.end();
  player.pause();
  renderRun();
}

function showStep(step, playing) {
  const { run, setting } = state;
  if (!setting) return;
  const total = run?.steps ?? steps();
  Object.assign(byId("scrub"), { max: total, value: step, disabled: !run });
  byId("scrub").setAttribute("aria-valuetext", `step ${step} of ${total}`);
  byId("where").textContent = run ? `step ${step} of ${total}, t = ${(1 - step / total).toFixed(3)}` : `${total} ${total === 1 ? "step" : "steps"}`;
  byId("play").classList.toggle("playing", playing);
  byId("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  for (const id of ["first", "back", "play", "forward", "last", ...["page", "gif", "animation", "json", "png", "frame"].map((name) => `save-${name}`)]) byId(id).disabled = !run?.reached;
  byId("copy-board").disabled = run?.state !== "done" || !run.verdicts.some((v) => v?.valid);
  byId("tour-start").disabled = run?.state !== "done";
  const told = setting.sure ? {} : run?.reached ? telling(run, step, state.check) : { text: "\u00a0" };
  byId("why").className = told.bad ? "bad" : "";
  say(byId("why"), told.text ?? "");
  for (const i of SIDES) showSide(i, step, playing);
  const ended = run?.state === "done" && player.arrived;
  for (const i of SIDES) showVerdict(i, ended);
  if (ended && page.arrived !== run) { page.arrived = run; speak(SIDES.map((i) => `${sideName(run.setting, i)}: ${verdict(run, i, state.check).head.replace(/^[✓✕] /, "")}.`).join(" ")); }
}

function showSide(i, step, playing) {
  const board = page.boards[i], { run, setting } = state, chosen = card(), frames = run?.frames[i] ?? [];
  if (!board) return;
  const frame = frames[step - 1] ?? null, name = `${shown(setting.view)}count`;
  board.draw(frame, setting.view, { ...run?.beside(i, step), cell: tour.cell ?? state.cell, marked: named(chosen, state.check?.detail ?? ""),
    image: !setting.sides[i].model && state.check?.picture, symbols: setting.cells === "symbols" });
  const [breaks, minds] = byId(`now-${i}`).children;
  breaks.classList.toggle("good", frame?.[name] === 0);
  say(breaks, frame ? broken(chosen, frame[name]) : run ? "the puzzle, before the first step" : "\u00a0");
  say(minds, frame ? many(frame.minds, "change").replace(/$/, " of mind") : "");
  board.svg.setAttribute("aria-label", `${sideName(setting, i)}, ${frame ? `step ${step}, ${broken(chosen, frame[name])}` : "the puzzle"}`);
  if (!playing) board.words.textContent = board.rows(frame, setting.view).join("; ");
  page.sparks[i].draw(frames.slice(0, player.arrived ? undefined : step), run?.steps ?? 1, name, run?.highest(name) ?? 1, run?.highest("changes") ?? 1);
  page.sparks[i].point(step, run?.steps ?? 1);
}

function showVerdict(i, ended) {
  const box = byId(`verdict-${i}`), { run } = state;
  const told = ended ? verdict(run, i, state.check) : null, key = told ? JSON.stringify(told) : run?.state === "stopped" ? "stopped" : "";
  if (box.told === key) return;
  box.told = key;
  box.className = `verdict ${told ? (told.valid ? "good" : told.hopeless ? "" : "bad") : ""}`;
  box.replaceChildren(...(told ? [make("b", { textContent: told.head }), ...(told.why ? [make("strong", { textContent: told.why })] : []), make("span", { textContent: told.rest })]
    : key ? [make("span", { textContent: `Stopped after ${run.reached} of ${run.steps} steps.` })] : []));
}

// ---- one cell

function cellAt(board, { kind, columns, rows }, event) {
  if (kind === "graph" || !state.run) return null;
  const box = board.svg.getBoundingClientRect(), { width, height, x, y } = board.svg.viewBox.baseVal, size = board.unit;
  const column = Math.floor((x + ((event.clientX - box.left) / box.width) * width) / size), row = Math.floor((y + ((event.clientY - box.top) / box.height) * height) / size);
  if (row < 0 || column < 0 || row >= rows || column >= columns) return null;
  return kind === "queens" ? row : row * columns + column;
}

function follow(cell) {
  if (cell === null || !state.run) return;
  state.cell = cell;
  renderCell();
  showStep(player.step, player.playing);
}

const CELL_HINTS = {
  grid: "Click a cell of a board, or name it here, to see its probabilities over time:",
  queens: "Click a row of a board, or name it here, to see where its queen may stand over time:",
  graph: "Name two nodes to see how likely a path joins them, over time:",
};

async function renderCell() {
  const { run, cell, setting } = state, chosen = card(), holder = byId("cell-sides"), wants = cell !== null || setting.view === "marks";
  const queens = chosen.kind === "queens", columns = chosen.kind === "graph" ? setting.puzzle.split("/").length : chosen.columns;
  byId("cell-column-label").hidden = queens;
  byId("cell-row-name").textContent = chosen.kind === "graph" ? "node" : "row";
  byId("cell-column-name").textContent = chosen.kind === "graph" ? "and node" : "column";
  byId("cell-hint").textContent = CELL_HINTS[chosen.kind] ?? CELL_HINTS.grid;
  for (const id of ["cell-row", "cell-column"]) byId(id).disabled = !run;
  byId("cell-row").max = chosen.kind === "graph" ? columns : chosen.rows;
  byId("cell-column").max = columns;
  byId("cell-none").hidden = cell === null;
  if (cell === null) holder.replaceChildren();
  if (cell !== null && ![byId("cell-row"), byId("cell-column")].includes(document.activeElement)) {
    byId("cell-row").value = queens ? cell + 1 : Math.floor(cell / columns) + 1;
    byId("cell-column").value = (cell % columns) + 1;
  }
  if (!wants || run?.state !== "done") return;
  if (!state.ready) { byId("cell-hint").textContent = "The probabilities come as soon as the models are there."; return; }
  if (cell !== null && !run.chances) holder.replaceChildren(make("p", { className: "hint", textContent: "The same run again, with all probabilities …" }));
  try {
    const chances = run.chances ?? (await probabilities(run, state.models));
    if (state.run !== run) return;
    if (state.cell !== null) holder.replaceChildren(...SIDES.map((i) => cellPanel(run, i, state.cell, chances[i])));
    for (const i of SIDES) showSide(i, player.step, player.playing);
  } catch (error) { if (state.run === run) { holder.replaceChildren(); problem(error.message); } }
}

function nameCell() {
  const row = Number(byId("cell-row").value), column = Number(byId("cell-column").value), columns = Number(byId("cell-column").max);
  const fine = Number.isInteger(row) && row >= 1 && row <= Number(byId("cell-row").max);
  if (card().kind === "queens") { if (fine) follow(row - 1); } else if (fine && column >= 1 && column <= columns) follow((row - 1) * columns + column - 1);
}

// ---- a race

async function startRace() {
  if (state.race?.stream) return stopRace();
  if (!state.ready) { page.wanted = "race"; byId("race-status").textContent = "Starts as soon as the models are there …"; return; }
  let seed, count, total;
  try {
    checkSettings();
    [seed, total, count] = [wholeNumber("seed", "Seed"), wholeNumber("steps", "Steps"), wholeNumber("race-count", "Boards")];
  } catch (error) { byId("race-status").textContent = error.message; return; }
  const first = state.setting.race?.seed ?? seed; // while a seed of a race is watched, the race begins where it began
  if (state.race) endRace();
  change({ seed, steps: total, race: { count, seed: first } });
  await page.checked;
  if (state.check?.detail) { byId("race-status").textContent = state.check.detail; return; }
  const { setting, models } = state, names = SIDES.map((i) => sideName(setting, i));
  const race = (state.race = new Race(raceKey(setting, models), names, { seed: first, count, vary: setting.vary }, watch));
  race.stream = new AbortController();
  race.words = "Waiting for a place …";
  renderRace();
  try {
    for await (const [name, data] of stream("/api/race", { ...body(setting, models), seed: first, count, vary: setting.vary, ...(setting.vary === "puzzles" && card().regime.usual !== null && { regime: byId("clues").value }) }, race.stream.signal)) {
      race.take(name, data);
      if (state.race === race) renderRace();
    }
    speak(names.map((name, i) => `${name} ${race.told(i)}.`).join(" "));
  } catch (error) {
    race.words = error.name === "AbortError" ? "Stopped." : error.message;
    race.state = "stopped";
  } finally {
    race.stream = null;
    if (state.race === race) renderRace();
  }
}

const stopRace = () => state.race.stream.abort();

/** Show one result of a race on the boards; the race goes on beside it. */
function watch(result) {
  const { race } = state;
  byId("seed").value = result.seed;
  change({ seed: result.seed, race: { count: race.count, seed: race.seed }, ...(result.puzzle && { puzzle: result.puzzle }) });
  start();
  byId("stage").scrollIntoView({ block: "start" });
}

// ---- wiring

function chooseModel(name) {
  const { puzzle } = state.setting, chosen = state.models.find((m) => m.name === name), kept = drawable(chosen, puzzle) && sameBoards(chosen, card());
  state.undo = kept ? state.undo : [];
  change({ model: name, ...(chosen.masked !== card().masked && { view: null }), ...(!kept && { puzzle: chosen.example.puzzle, seed: chosen.example.seed }), sides: state.setting.sides.map(({ model, ...side }) => side) });
}

/** A task comes back with the model that it was left with; at first with the one that shows most. */
function chooseTask(title) {
  const fitting = state.models.filter((m) => m.title === title);
  const known = fitting.find((m) => m.name === page.models.get(title)) ?? fitting.find((m) => m.name === page.default);
  const shows = fitting.find((m) => m.source === "local") ?? fitting.find((m) => m.name.endsWith("-baseline"));
  chooseModel((known ?? shows ?? fitting[0]).name);
}

function chooseExample(title) {
  const example = page.examples.find((one) => one.title === title);
  if (!example) return;
  const { model, puzzle, sides, seed, sure } = example;
  state.undo = [];
  const chosen = state.models.find((m) => m.name === model);
  change({ model, ...(chosen.masked !== card().masked && { view: null }), puzzle: puzzle ?? chosen.example.puzzle, sides, seed, steps: null, vary: "seeds", race: null });
  byId("seed").value = seed;
  byId("steps").value = steps();
  if (byId("stage").getBoundingClientRect().bottom < 300) byId("question").scrollIntoView(); // where the form stands below the boards
  if (!sure) return start();
  until.start(sure);
  byId("until").scrollIntoView({ block: "nearest" });
}

function listenToTheForm(on) {
  on("chosen", "change", (e) => chooseExample(e.target.value));
  on("task", "change", (e) => chooseTask(e.target.value));
  on("model", "change", (e) => chooseModel(e.target.value));
  on("example", "click", () => { byId("seed").value = card().example.seed; change({ seed: card().example.seed }); edit(card().example.puzzle); });
  on("random", "click", randomPuzzle);
  on("clear", "click", () => edit(blank(card(), drawn(card(), state.setting.puzzle))));
  on("undo", "click", undo);
  on("puzzle", "input", (e) => edit(e.target.value, { typed: true }));
  on("editor", "paste", (e) => { e.preventDefault(); edit(e.clipboardData.getData("text")); });
  document.addEventListener("paste", (e) => { // on a board, or on nothing at all
    if (e.defaultPrevented || /^(INPUT|TEXTAREA)$/.test(e.target.tagName ?? "")) return;
    if (byId("stage").contains(e.target) || e.target === document.body) edit(e.clipboardData.getData("text"));
  });
  on("editor", "keydown", (e) => { if ((e.ctrlKey || e.metaKey) && e.key === "z") { e.preventDefault(); undo(); } });
  for (const [id, name] of [["steps", "Steps"], ["seed", "Seed"]]) {
    const take = () => change({ [id]: wholeNumber(id, name), ...(id === "seed" && { race: null }) });
    on(id, "input", () => { try { take(); } catch { /* not finished yet */ } }); // at once: nothing moves under a click that follows
    on(id, "change", () => { try { wholeNumber(id, name); } catch (error) { problem(error.message); } });
  }
  for (const i of SIDES) {
    const side = (patch) => change({ sides: state.setting.sides.map((old, j) => (i === j ? patch(old) : old)) });
    on(`rule-${i}`, "change", (e) => side(({ model }) => ({ model, rule: e.target.value })));
    on(`model-${i}`, "change", (e) => side((old) => ({ ...old, model: e.target.value })));
  }
}

function listenToTheStage(on) {
  on("run", "click", () => (state.run?.stream && ["waiting", "sampling"].includes(state.run.state) ? stopRun() : start()));
  on("race", "click", startRace);
  on("race-count", "input", renderCost);
  on("race-vary", "change", (e) => change({ vary: e.target.value, race: null }));
  for (const input of document.querySelectorAll("input[name=view]")) input.addEventListener("change", () => change({ view: input.value }));
  on("images", "change", (e) => change({ cells: e.target.checked ? "images" : "symbols" }));
  on("play", "click", () => (player.playing ? player.pause() : player.play()));
  on("first", "click", () => player.seek(0));
  on("back", "click", () => player.seek(player.step - 1));
  on("forward", "click", () => player.seek(player.step + 1));
  on("last", "click", () => player.seek(player.available));
  on("scrub", "input", (e) => player.seek(Number(e.target.value)));
  on("speed", "input", speed);
  takeAway((id, handler) => on(id, "click", handler), () => page.boards, () => player.step);
  on("tour-start", "click", () => { player.pause(); tour.start(state.run, state.check); });
  on("cell-row", "change", nameCell);
  on("cell-column", "change", nameCell);
  on("cell-none", "click", () => { state.cell = null; byId("cell-row").value = byId("cell-column").value = ""; renderRun(); });
  on("to-setup", "click", () => { byId("setup").scrollIntoView(); });
  document.querySelector(".skip").addEventListener("click", (e) => { e.preventDefault(); byId("stage").focus(); }); // the hash is taken
  addEventListener("hashchange", () => {
    if (!state.ready) return;
    if (location.hash.includes("model=")) restore(read(location.hash));
    else publish(); // the setting has no link of its own yet
  });
}

function speed() {
  player.rate = Math.round(4 * 2 ** Number(byId("speed").value)) / 2; // 2 to 1024 steps a second
  const words = `${player.stepsPerSecond.toFixed(player.stepsPerSecond < 10 ? 1 : 0)} steps/s`;
  byId("speed-value").textContent = words;
  byId("speed").setAttribute("aria-valuetext", words.replace("/s", " a second"));
}

/** A setting from a link; a link that was made after a run runs again. */
function restore(linked) {
  const chosen = state.models.find((m) => m.name === linked.model);
  if (linked.model && !chosen) {
    if (!state.setting) change({ ...fresh(), model: page.default, puzzle: null }, { linked: true });
    const others = linked.sides.map((side) => side.rule).filter(Boolean).length ? " Nothing of the link was opened." : "";
    return problem(`The link asks for the model '${linked.model}', which this server does not offer.${others}`);
  }
  const { example, steps: usual } = chosen, { run, race, sure } = linked;
  change({ ...linked, puzzle: tidy(chosen, linked.puzzle ?? example.puzzle), seed: linked.seed ?? example.seed, steps: linked.steps === usual ? null : linked.steps, run: false, race: null, sure: null });
  for (const id of ["steps", "seed"]) byId(id).value = id === "steps" ? steps() : state.setting.seed;
  if (race) { byId("race-count").value = race.count; state.setting.race = race; startRace(); }
  if (sure && chosen.sure != null) until.start(sure);
  if (run) start();
}

/** The opening plays while the models load: a visitor sees the point before anything has to be pressed. */
async function openWithTheStory() {
  try {
    const told = (page.recording = await story.load());
    if (state.ready) return;
    state.models = [told.card];
    change(story.storySetting(told), { linked: true });
    showStory();
  } catch { /* without a recording the page begins when the models are there */ }
}

function showStory() {
  const told = page.recording, run = (state.run = story.storyRun(told)), race = (state.race = story.storyRace(told, watch));
  const results = SIDES.map((side) => told.race.results.filter((result) => result.side === side));
  const turn = (i) => {
    if (state.race !== race) return;
    for (const side of SIDES) race.take("result", results[side][i]);
    race.share = (i + 1) / race.count;
    race.words = `Recorded: ${race.results} boards, seeds ${race.seed} to ${race.seed + race.count - 1}.`;
    if (i + 1 === race.count) race.state = "done";
    renderRace();
    if (i + 1 < race.count) { if (CALM.matches) turn(i + 1); else setTimeout(turn, 120, i + 1); }
  };
  turn(0);
  byId("race-count").value = race.count;
  player.load(run.steps, run.reached, true);
  if (CALM.matches) player.seek(run.steps); else player.play();
  renderRun();
  renderRace();
}

async function open() {
  theme();
  page.sparks = SIDES.map((i) => makeSpark(byId(`spark-${i}`)));
  const on = (id, event, handler) => byId(id).addEventListener(event, handler);
  listenToTheForm(on);
  listenToTheStage(on);
  tour.listen();
  until.listen();
  speed();
  const linked = read(location.hash), opening = openWithTheStory();
  try {
    const [list, health] = await Promise.all([get("/api/models"), get("/api/health"), opening, get("/examples.json").then((all) => { page.examples = all; }, () => {})]);
    const failed = Object.entries(list.failed).map(([name, why]) => `${name} cannot be read and is left out: ${why}.`).join(" ");
    byId("version").textContent = `letgo ${health.version}.`;
    byId("steps").max = health.limits.steps;
    byId("race-count").max = health.limits.seeds;
    byId("sure-tries").max = health.limits.tries;
    if (!list.models.length) throw new Error(`This server has no models. Start it with \`letgo app --model RUN\`. ${failed}`);
    begin(list, linked);
    if (failed) problem(failed);
  } catch (error) {
    status("");
    problem(error.message);
  }
}

/** The models are there. The story stays on show until something else is asked for. */
function begin(list, linked) {
  state.models = list.models;
  state.ready = true;
  page.default = list.default ?? list.models[0].name;
  for (const id of ["chosen", "task", "model", "example", "random", "clear", "clues", "puzzle", "steps", "seed"]) byId(id).disabled = false;
  page.examples = page.examples.filter((one) => [one.model, ...one.sides.map((side) => side.model ?? one.model)].every((name) => list.models.some((m) => m.name === name)));
  byId("chosen").replaceChildren(make("option", { value: "", textContent: "choose one …" }), ...page.examples.map(({ title }) => make("option", { value: title, textContent: title })));
  const told = page.recording?.card.name;
  if (linked.model) restore(linked);
  else if (told !== page.default || !state.setting) restore({ ...fresh(), model: page.default });
  else { render(null, false); check(); }
  if (page.wanted === "run") start();
  if (page.wanted === "race") startRace();
  page.wanted = null;
}

open();
