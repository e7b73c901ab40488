// The one state of the page. `change` in main.js is the one way to a new setting; everything on show follows from here.

export const state = {
  models: [], // cards; only the recorded story's while the server reads its models
  ready: false, // have the models been read?
  setting: null, // what the form says, see setting.js
  check: null, // what the server makes of the puzzle; null while it is being asked
  run: null, // the Run on show, recorded or live
  race: null, // the Race on show
  sure: null, // the Attempts on show
  undo: [], // puzzles that were there before
  cell: null, // the cell that is followed
  tour: null, // which step of the tour is shown
  problem: "", // what went wrong, in words
};

export const card = () => state.models.find((m) => m.name === state.setting.model);
