// The whole setting, in the page's address: a link repeats it exactly.

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
};
export const SETTINGS = {
  sigma: { label: "sigma", min: 0, max: 100, step: "any" },
  tau_start: { label: "tau_start", min: 0, max: 1, step: "any" },
  variance: { label: "variance ×", min: 0, max: 16, step: "any" },
  soft_until: { label: "soft until t*", min: 0, max: 1, step: "any" },
};
const SIDES = ["a", "b"];

export const titleOf = (rule) => RULES[rule]?.[0] ?? rule;
export const glossOf = (rule) => RULES[rule]?.[1] ?? "";

/** Two sides that the model can play: another rule gives way to the model's own, with what it does not take. */
export function fit(model, sides) {
  return sides.map((side, i) => {
    const rule = Object.hasOwn(model.rules, side.rule) ? side.rule : model.default_rules[i % model.default_rules.length];
    return { rule, ...Object.fromEntries(Object.entries(side).filter(([name]) => model.rules[rule].includes(name))) };
  });
}

/** From the address; what it does not say is left out. */
export function read(hash) {
  const query = new URLSearchParams(hash.replace(/^#/, ""));
  const setting = { sides: [{}, {}], run: query.get("run") === "1" };
  for (const name of ["model", "puzzle", "view"]) if (query.has(name)) setting[name] = query.get(name);
  for (const name of ["steps", "seed"]) if (/^\d+$/.test(query.get(name) ?? "")) setting[name] = Number(query.get(name));
  SIDES.forEach((side, i) => {
    if (query.get(side)) setting.sides[i].rule = query.get(side);
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
    for (const [name, value] of Object.entries(values)) if (value !== undefined) query.set(`${side}.${name}`, value);
  });
  query.set("steps", setting.steps);
  query.set("seed", setting.seed);
  if (setting.view !== "x") query.set("view", setting.view);
  if (setting.run) query.set("run", "1");
  return "#" + query;
}

/** The body of /api/trajectory and /api/race. */
export function body(setting) {
  return { model: setting.model, puzzle: setting.puzzle, rules: setting.sides, steps: setting.steps, seed: setting.seed };
}
