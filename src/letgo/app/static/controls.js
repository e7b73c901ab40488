// The form: models, rules and their settings.

import { SETTINGS, glossOf, titleOf } from "./setting.js";

export const byId = (id) => document.getElementById(id);

const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text });

export function fillModels(models, chosen) {
  const tasks = [...new Map(models.map((m) => [m.title, m])).keys()];
  byId("task").replaceChildren(...tasks.map((title) => option(title, title)));
  byId("task").value = chosen.title;
  const fitting = models.filter((m) => m.title === chosen.title);
  byId("model").replaceChildren(...fitting.map((m) => option(m.name, m.name)));
  byId("model").value = chosen.name;
  byId("model-summary").textContent = chosen.summary;
}

export function fillRules(model, sides) {
  sides.forEach(({ rule }, i) => {
    const select = byId(`rule-${i}`);
    select.replaceChildren(...Object.keys(model.rules).map((name) => option(name, titleOf(name))));
    select.value = rule;
    byId(`gloss-${i}`).textContent = glossOf(rule);
  });
}

/** The inputs of one side's settings; empty means the default, shown as a placeholder. */
export function fillSettings(i, side, { rules, tuned }, onChange) {
  const taken = rules[side.rule];
  const inputs = Object.entries(SETTINGS).filter(([name]) => taken.includes(name)).map(([name, { label, min, max, step }]) => {
    const input = Object.assign(document.createElement("input"), { type: "number", min, max, step, inputMode: "decimal" });
    input.id = `${name}-${i}`;
    input.value = side[name] ?? "";
    input.placeholder = { variance: "1", soft_until: "never" }[name] ?? tuned[side.rule]?.[name] ?? "needed";
    input.addEventListener("change", () => onChange(name, input.value === "" ? undefined : Number(input.value)));
    const holder = document.createElement("label");
    holder.append(label, input);
    return holder;
  });
  byId(`settings-${i}`).querySelector("div").replaceChildren(...inputs);
  const needs = taken.includes("sigma") && !tuned[side.rule] && side.sigma === undefined;
  if (needs) byId(`settings-${i}`).open = true;
}

/** A whole number within the field's bounds, or words on what is wrong. */
export function wholeNumber(id, name) {
  const input = byId(id), value = Number(input.value), low = Number(input.min), high = Number(input.max);
  const fine = input.value !== "" && Number.isInteger(value) && value >= low && value <= high;
  input.setAttribute("aria-invalid", String(!fine));
  if (!fine) throw new Error(`${name} must be a whole number from ${low} to ${high}.`);
  return value;
}

export function theme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  let kept = null;
  try { kept = localStorage.getItem("letgo-theme"); } catch { /* storage may be forbidden */ }
  if (kept) root.dataset.theme = kept;
  byId("theme").addEventListener("click", () => {
    const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    try { localStorage.setItem("letgo-theme", root.dataset.theme); } catch { /* kept for this visit only */ }
  });
}
