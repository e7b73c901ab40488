// The whole setting, in the page's address: a link repeats it exactly. Pure functions; nothing here touches the page.

const RULES = {
  ddpm: ["DDPM", "Stays close to the last state, and so to its mistakes."],
  tweedie: ["Tweedie reprojection", "Lets go of the state; noises the proposal afresh."],
  resample: ["Resampling", "Tweedie's way, with symbols drawn from the proposal instead of their mean."],
  ddim: ["DDIM", "No fresh noise: the start decides everything."],
  euler: ["Euler", "The probability-flow ODE, in straight steps."],
  heun: ["Heun", "The same ODE, second order; two network calls a step."],
  em: ["Euler–Maruyama", "The reverse SDE with constant noise sigma."],
  "em-decay": ["EM with decay", "Noise sigma that falls to zero from progress tau_start on."],
  ancestral: ["Ancestral unmasking", "Opens masked cells at random; what is open stays."],
  confidence: ["Surest first", "Opens the cells that the network is surest of."],
  remask: ["Remasking", "Surest first; near the end it hides its least sure cells again."],
  remdm: ["ReMDM", "Opened cells may be masked again at every step."],
};
export const SETTINGS = {
  sigma: { label: "sigma", min: 0, max: 100, step: "any" },
  tau_start: { label: "tau_start", min: 0, max: 1, step: "any" },
  sigma_ahead: { label: "sigma ahead", min: 0, max: 100, step: "any" },
  variance: { label: "variance ×", min: 0, max: 16, step: "any" },
  ahead: { label: "steps ahead", min: 0, max: 100, step: "any" },
  t_max: { label: "t max", min: 0, max: 1, step: "any" },
  t_min: { label: "t min", min: 0, max: 1, step: "any" },
  soft_until: { label: "soft until t*", min: 0, max: 1, step: "any" },
  order_noise: { label: "order noise", min: 0, max: 16, step: "any" },
  temperature: { label: "temperature", min: 0, max: 16, step: "any" },
};
export const VIEWS = ["p", "heat", "marks", "x", "both"];
const SIDES = ["a", "b"];

export const titleOf = (rule) => RULES[rule]?.[0] ?? rule;
export const glossOf = (rule) => RULES[rule]?.[1] ?? "";

/** Do two models play on the same boards? */
export const sameBoards = (a, b) => a.title === b.title && a.cells === b.cells && String(a.letters) === String(b.letters);

const find = (models, name) => models.find((m) => m.name === name);
export const sideCard = (setting, models, i) => find(models, setting.sides[i].model) ?? find(models, setting.model);
export const stepsOf = (setting, models) => setting.steps ?? find(models, setting.model).steps;

/** What is shown at first: the proposal; of masked diffusion the state, which fills up. */
const usualView = (card) => (card.masked ? "x" : "p");

/** A setting that can be played: a model or rule that does not fit gives way to the main model and its own rules. */
export function settle(setting, models) {
  const main = find(models, setting.model);
  const sides = setting.sides.map((side, i) => {
    const other = find(models, side.model), own = other && sameBoards(main, other) ? other : main;
    const rule = Object.hasOwn(own.rules, side.rule) ? side.rule : own.default_rules[i % own.default_rules.length];
    const taken = Object.entries(side).filter(([name, value]) => own.rules[rule].includes(name) && value !== undefined);
    return { ...(own !== main && { model: own.name }), rule, ...Object.fromEntries(taken) };
  });
  return { ...setting, sides, view: setting.view ?? usualView(main), steps: setting.steps === main.steps ? null : setting.steps };
}

/** What a run on show must agree with, and a race. */
export const raceKey = (setting, models) =>
  JSON.stringify([setting.model, setting.sides, setting.vary === "puzzles" ? "" : setting.puzzle, stepsOf(setting, models), setting.vary]);
export const runKey = (setting, models) =>
  JSON.stringify([setting.model, setting.sides, setting.puzzle, stepsOf(setting, models), setting.seed]);

export const fresh = () => ({ model: null, sides: [{}, {}], puzzle: null, steps: null, seed: null, view: null, cells: "images", run: false, race: null, vary: "seeds", sure: null });

/** From the address; what it does not say is left as `fresh` has it. */
export function read(hash) {
  const query = new URLSearchParams(hash.replace(/^#/, "")), setting = fresh();
  for (const name of ["model", "puzzle"]) if (query.has(name)) setting[name] = query.get(name);
  for (const name of ["steps", "seed"]) if (/^\d+$/.test(query.get(name) ?? "")) setting[name] = Number(query.get(name));
  if (VIEWS.includes(query.get("view"))) setting.view = query.get("view");
  if (query.get("cells") === "symbols") setting.cells = "symbols";
  setting.run = query.get("run") === "1";
  const race = /^(\d+)@(\d+)$/.exec(query.get("race") ?? "");
  if (race) setting.race = { count: Number(race[1]), seed: Number(race[2]) };
  if (/^\d+$/.test(query.get("sure") ?? "")) setting.sure = Number(query.get("sure"));
  if (query.get("vary") === "puzzles") setting.vary = "puzzles";
  SIDES.forEach((side, i) => {
    if (query.get(side)) setting.sides[i].rule = query.get(side);
    if (query.get(`${side}.model`)) setting.sides[i].model = query.get(`${side}.model`);
    for (const name of Object.keys(SETTINGS)) {
      const value = query.get(`${side}.${name}`);
      if (value !== null && value !== "" && Number.isFinite(Number(value))) setting.sides[i][name] = Number(value);
    }
  });
  return setting;
}

export function write(setting, models) {
  const query = new URLSearchParams();
  query.set("model", setting.model);
  query.set("puzzle", setting.puzzle);
  SIDES.forEach((side, i) => {
    const { rule, ...values } = setting.sides[i];
    query.set(side, rule);
    for (const [name, value] of Object.entries(values)) if (value !== undefined) query.set(`${side}.${name}`, value);
  });
  query.set("steps", stepsOf(setting, models));
  query.set("seed", setting.seed);
  if (setting.view !== usualView(find(models, setting.model))) query.set("view", setting.view);
  if (setting.cells === "symbols") query.set("cells", "symbols");
  if (setting.vary !== "seeds") query.set("vary", setting.vary);
  if (setting.race) query.set("race", `${setting.race.count}@${setting.race.seed}`);
  if (setting.sure) query.set("sure", setting.sure);
  if (setting.run) query.set("run", "1");
  return "#" + query;
}

/** The body of /api/trajectory and /api/race. */
export function body(setting, models) {
  const { model, puzzle, sides, seed } = setting;
  return { model, puzzle, rules: sides, steps: stepsOf(setting, models), seed };
}
