// The whole setting, in the page's address: a link repeats it exactly.

export const RULES = {
  ddpm: ["DDPM", "Stays close to the last state, and so to its mistakes."],
  tweedie: ["Tweedie reprojection", "Lets go of the state; noises the proposal afresh."],
  resample: ["Resampling", "Tweedie's way, with symbols drawn from the proposal instead of their mean."],
  ddim: ["DDIM", "No fresh noise: the start decides everything."],
  euler: ["Euler", "The probability-flow ODE, in straight steps."],
  heun: ["Heun", "The same ODE, second order; two network calls a step."],
  em: ["Euler–Maruyama", "The reverse SDE with constant noise sigma."],
  "em-decay": ["EM with decay", "Noise sigma that falls to zero from progress tau_start on."],
};
export const SETTINGS = {
  sigma: { label: "sigma", min: 0, max: 100, step: "any", only: ["em", "em-decay"] },
  tau_start: { label: "tau_start", min: 0, max: 1, step: "any", only: ["em-decay"] },
  variance: { label: "variance ×", min: 0, max: 16, step: "any" },
  soft_until: { label: "soft until t*", min: 0, max: 1, step: "any" },
};
const SIDES = ["a", "b"];

export const takes = (rule, name) => !SETTINGS[name].only || SETTINGS[name].only.includes(rule);

/** From the address; what it does not say is left out. */
export function read(hash) {
  const query = new URLSearchParams(hash.replace(/^#/, ""));
  const setting = { sides: [{}, {}], run: query.get("run") === "1" };
  for (const name of ["model", "puzzle", "view"]) if (query.has(name)) setting[name] = query.get(name);
  for (const name of ["steps", "seed"]) if (/^\d+$/.test(query.get(name) ?? "")) setting[name] = Number(query.get(name));
  SIDES.forEach((side, i) => {
    if (query.get(side) in RULES) setting.sides[i].rule = query.get(side);
    for (const name of Object.keys(SETTINGS)) {
      const value = query.get(`${side}.${name}`);
      if (value !== null && value !== "" && Number.isFinite(Number(value))) setting.sides[i][name] = Number(value);
    }
  });
  return setting;
}

export function write(setting) {
  const query = new URLSearchParams();
  query.set("model", setting.model);
  query.set("puzzle", setting.puzzle);
  SIDES.forEach((side, i) => {
    const { rule, ...values } = setting.sides[i];
    query.set(side, rule);
    for (const [name, value] of Object.entries(values)) if (value !== undefined && takes(rule, name)) query.set(`${side}.${name}`, value);
  });
  query.set("steps", setting.steps);
  query.set("seed", setting.seed);
  if (setting.view !== "x") query.set("view", setting.view);
  if (setting.run) query.set("run", "1");
  return "#" + query;
}

/** The body of /api/trajectory and /api/race. */
export function body(setting) {
  const rules = setting.sides.map(({ rule, ...values }) => {
    const kept = Object.entries(values).filter(([name, value]) => value !== undefined && takes(rule, name));
    return { rule, ...Object.fromEntries(kept) };
  });
  return { model: setting.model, puzzle: setting.puzzle, rules, steps: setting.steps, seed: setting.seed };
}
