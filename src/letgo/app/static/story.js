// The opening: a run and a race that `tools/record_story.py` recorded from a shipped model. It plays while models load.

import { clues } from "./boards.js";
import { Race } from "./race.js";
import { Run } from "./run.js";
import { fresh, raceKey, runKey, settle } from "./setting.js";
import { sideName } from "./words.js";

export async function load() {
  const response = await fetch("story.json");
  if (!response.ok) throw new Error("no story");
  return response.json();
}

export const storySetting = (story) => settle({ ...fresh(), ...story.setting }, [story.card]);

export function storyRun(story) {
  const { card } = story, setting = storySetting(story), given = clues(card, setting.puzzle)?.map((clue) => clue !== null);
  const run = new Run(runKey(setting, [card]), setting, card, story.start.steps, given);
  run.recorded = true;
  run.take("start", story.start);
  story.frames.forEach((frames, side) => frames.forEach((frame) => run.take("frame", { side, ...frame })));
  story.verdicts.forEach((verdict) => run.take("verdict", verdict));
  run.take("done", {});
  return run;
}

export function storyRace(story, watch) {
  const setting = storySetting(story), { seed, count } = story.race;
  const race = new Race(raceKey(setting, [story.card]), [0, 1].map((i) => sideName(setting, i)), { seed, count, vary: "seeds" }, watch);
  race.recorded = true;
  return race;
}
