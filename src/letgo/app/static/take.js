// A setting as a command or as Python, and a run's board as text.

const flag = (name) => `--${name.replace("_", "-")}`;
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** One command for each side: the same puzzle, seed and steps, to the end as the page plays it. */
export function asCommand(setting, steps) {
  return setting.sides.map(({ model, rule, ...values }) => [
    "letgo solve", quoted(model ?? setting.model), quoted(setting.puzzle), "--no-verify", "--rule", rule, "--steps", steps, "--seed", setting.seed,
    ...Object.entries(values).flatMap(([name, value]) => [flag(name), value]),
  ].join(" ")).join("\n");
}

export function asPython(setting, steps) {
  const sides = setting.sides.map(({ model, rule, ...values }) => {
    const more = Object.entries(values).map(([name, value]) => `, ${name}=${value}`).join("");
    return `for snapshot in letgo.load(${JSON.stringify(model ?? setting.model)}).trajectory(puzzle, rule=${JSON.stringify(rule)}, steps=${steps}, seed=${setting.seed}${more}):\n    print(snapshot.step, snapshot.t, snapshot.x0_hat.argmax(-1))`;
  });
  return `import letgo\n\npuzzle = ${JSON.stringify(setting.puzzle)}\n${sides.join("\n")}\n`;
}

/** The final board of the first side that is valid, as `letgo solve` writes it. */
export function boardText(run) {
  const side = run.verdicts.findIndex((verdict) => verdict?.valid), { card } = run, symbols = run.frames[side].at(-1).x;
  const letters = symbols.map((symbol) => (card.kind === "graph" ? String(symbol) : card.letters[symbol] ?? "?"));
  if (card.kind !== "graph" && card.kind !== "maze") return letters.join(card.separator);
  const n = Math.round(Math.sqrt(letters.length));
  return Array.from({ length: n }, (_, i) => letters.slice(i * n, (i + 1) * n).join("")).join("/");
}
