// A run that plays anywhere: one script without imports, for a file of its own and for notebooks. It draws on canvases.
// The run: {title, sides: [name], rows, columns, box, kind, letters, given: [symbol or null], frames: [[{x, c, bad}]], steps,
// why: [words on how a side ended], or nothing}.
// Of a frame, x is the proposal (one character per cell, base 36), c its certainty (the same), bad the broken cells.

(() => {
  const [WALL, OPEN, WAY] = [0, 1, 4]; // a maze's symbols; S and G lie between
  for (const root of document.querySelectorAll(".letgo-replay:not([data-alive])")) {
    root.dataset.alive = "1";
    const run = JSON.parse(document.querySelector(root.dataset.run ? `.letgo-run[data-run="${root.dataset.run}"]` : ".letgo-run").textContent);
    const unit = Math.max(12, Math.floor(840 / Math.max(run.rows, run.columns))), line = Math.max(1, unit / 24), dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const ink = dark ? "#ebe8e2" : "#26241f", paper = dark ? "#1b1e22" : "#ffffff", clue = dark ? "#33373d" : "#eae6dd", bad = dark ? "#ffb1a8" : "#a61b15", wall = dark ? "#868d97" : "#57534b", flash = dark ? "#5a4a12" : "#ffe7a3";
    const sure = dark ? [156, 196, 247] : [23, 79, 146];
    const boards = run.sides.map((name, side) => {
      const article = document.createElement("article"), title = document.createElement("h2"), words = document.createElement("p"), canvas = document.createElement("canvas");
      title.textContent = name;
      canvas.width = run.columns * unit;
      canvas.height = run.rows * unit;
      canvas.setAttribute("role", "img");
      article.append(title, canvas, words);
      root.querySelector(".sides").append(article);
      return { canvas, words, frames: run.frames[side] };
    });
    const value = (text, i) => parseInt(text[i], 36);
    function draw({ canvas, words, frames }, side) {
      const pen = canvas.getContext("2d"), frame = frames[step - 1], before = frames[step - 2], queens = run.kind === "queens";
      pen.fillStyle = paper;
      pen.fillRect(0, 0, canvas.width, canvas.height);
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      for (let i = 0; i < run.given.length; i++) {
        const given = run.given[i], symbol = frame ? value(frame.x, i) : given, at = queens ? i * run.columns + (symbol ?? 0) : i;
        const x = (at % run.columns) * unit, y = Math.floor(at / run.columns) * unit, broken = frame?.bad.includes(i);
        if (queens && symbol == null) continue;
        const changed = before && frame && before.x[i] !== frame.x[i];
        const blank = (run.kind === "maze" && symbol === OPEN) || (run.kind === "graph" && symbol === 0);
        pen.fillStyle = run.kind === "maze" && symbol === WALL ? wall : given !== null ? clue : changed ? flash : frame && !blank ? `rgba(${sure},${0.22 * (value(frame.c, i) / 35) ** 2})` : paper;
        pen.fillRect(x, y, unit, unit);
        if (symbol == null || Number.isNaN(symbol) || (run.kind === "maze" && (symbol === WALL || symbol === OPEN))) continue;
        pen.fillStyle = broken ? bad : given !== null ? ink : `rgba(${sure},${0.45 + 0.55 * (frame ? value(frame.c, i) / 35 : 1)})`;
        pen.font = `${given !== null ? "bold " : ""}${Math.floor(unit * 0.56)}px sans-serif`;
        if (run.kind === "maze" && symbol === WAY) pen.fillRect(x + unit / 8, y + unit / 8, 0.75 * unit, 0.75 * unit);
        else pen.fillText(queens ? "♛" : run.letters[symbol] ?? "?", x + unit / 2, y + unit / 2 + line, unit - 2);
        if (broken && run.kind !== "maze") pen.fillRect(x + unit * 0.25, y + unit * 0.88, unit * 0.5, 1.5 * line);
      }
      pen.strokeStyle = ink;
      for (let k = 0; k <= Math.max(run.rows, run.columns); k++) {
        if (run.kind === "maze" && k % run.rows) continue;
        pen.lineWidth = run.box && k % run.box === 0 ? 1.5 * line : 0.4 * line;
        pen.beginPath();
        if (k <= run.columns) { pen.moveTo(k * unit, 0); pen.lineTo(k * unit, canvas.height); }
        if (k <= run.rows) { pen.moveTo(0, k * unit); pen.lineTo(canvas.width, k * unit); }
        pen.stroke();
      }
      const text = frame ? (frame.bad.length ? `${frame.bad.length} ${frame.bad.length === 1 ? "cell breaks" : "cells break"} a rule` : "every rule holds") : "the puzzle";
      words.textContent = (step === run.steps && run.why?.[side]) || text;
      canvas.setAttribute("aria-label", text);
    }
    const scrub = root.querySelector(".scrub"), play = root.querySelector(".play"), now = root.querySelector(".now");
    let step = 0, timer = null;
    const show = () => { boards.forEach(draw); scrub.value = step; now.textContent = `${run.title}; step ${step} of ${run.steps}`; };
    const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; };
    scrub.max = run.steps;
    scrub.addEventListener("input", () => { stop(); step = Number(scrub.value); show(); });
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (step >= run.steps) step = 0;
      play.textContent = "Pause";
      timer = setInterval(() => { step += 1; show(); if (step >= run.steps) stop(); }, 50);
    });
    step = run.steps;
    show();
  }
})();
