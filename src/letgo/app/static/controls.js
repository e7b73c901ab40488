// The form: models, rules and their settings.

import { SETTINGS, glossOf, sameBoards, sideCard, stepsOf, titleOf } from "./setting.js";

export const byId = (id) => document.getElementById(id);
export const make = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};

const option = (value, text) => make("option", { value, textContent: text });

/** Options only where they differ: a select that is rebuilt while it is open would close. */
function fill(select, pairs, value) {
  const key = JSON.stringify(pairs);
  if (select.filled !== key) { select.replaceChildren(...pairs.map(([name, text]) => option(name, text))); select.filled = key; }
  select.value = value;
}

export function fillModels(models, chosen) {
  const tasks = [...new Set(models.map((m) => m.title))];
  fill(byId("task"), tasks.map((title) => [title, title]), chosen.title);
  fill(byId("model"), models.filter((m) => m.title === chosen.title).map((m) => [m.name, m.name]), chosen.name);
  byId("model-summary").textContent = chosen.summary;
}

export function fillSides(models, chosen, setting, onChange, onWrong) {
  const beside = models.filter((m) => sameBoards(m, chosen));
  setting.sides.forEach((side, i) => {
    const own = sideCard(setting, models, i);
    fill(byId(`rule-${i}`), Object.keys(own.rules).map((name) => [name, titleOf(name)]), side.rule);
    fill(byId(`model-${i}`), beside.map((m) => [m.name, m.name]), own.name);
    byId(`gloss-${i}`).textContent = glossOf(side.rule);
    fillSettings(i, side, own, stepsOf(setting, models), onChange, onWrong);
  });
}

/** The inputs of one side's settings; empty means the default, shown as a placeholder. */
function fillSettings(i, side, { rules, tuned, tuned_steps }, steps, onChange, onWrong) {
  const holder = byId(`settings-${i}`), taken = rules[side.rule], key = JSON.stringify([side.rule, taken, tuned[side.rule]]);
  if (holder.filled !== key) {
    holder.filled = key;
    const inputs = Object.entries(SETTINGS).filter(([name]) => taken.includes(name)).map(([name, { label, min, max, step }]) => {
      const input = make("input", { type: "number", min, max, step, inputMode: "decimal", id: `${name}-${i}` });
      const usual = {
        variance: "1", ahead: "0", t_max: "1", t_min: "0", sigma_ahead: "0", soft_until: "never", order_noise: "symbols are drawn", temperature: "0.5",
      };
      input.placeholder = tuned[side.rule]?.[name] ?? usual[name] ?? "needed";
      input.addEventListener("change", () => {
        try { withinBounds(input); } catch (error) { return onWrong(error.message); }
        onChange(i, name, input.value === "" ? undefined : Number(input.value));
      });
      return make("label", {}, label, input);
    });
    holder.querySelector("div").replaceChildren(...inputs, make("p", { className: "hint", id: `tuned-${i}` }));
  }
  for (const name of taken) { const input = byId(`${name}-${i}`); if (input && document.activeElement !== input) { input.value = side[name] ?? ""; input.removeAttribute("aria-invalid"); } }
  const needs = taken.includes("sigma") && !tuned[side.rule] && side.sigma === undefined;
  const other = tuned[side.rule] && side.sigma === undefined && tuned_steps?.[side.rule] && tuned_steps[side.rule] !== steps;
  byId(`tuned-${i}`).textContent = other ? `Tuned for ${tuned_steps[side.rule]} steps; with ${steps} other values may be better.` : "";
  if (needs || other) holder.open = true;
}

function withinBounds(input) {
  const fine = input.validity.valid;
  input.setAttribute("aria-invalid", String(!fine));
  if (!fine) throw new Error(`${input.labels[0].textContent} must be a number from ${input.min} to ${input.max}.`);
}

/** Both sides' settings are within their bounds, or words on what is wrong. */
export const checkSettings = () => document.querySelectorAll(".settings input").forEach(withinBounds);

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
