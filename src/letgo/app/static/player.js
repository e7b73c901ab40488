// The clock of a run: which step is shown. It follows a stream at its own pace and replays it at any speed.

export class Player {
  constructor(show) {
    this.show = show; // (step, playing)
    this.reset(1);
  }

  reset(steps) {
    this.steps = steps;
    this.available = 0; // steps that both sides have reached
    this.at = 0;
    this.playing = false;
    this.arrived = false; // has the end been on show?
    this.show(0, false);
  }

  set rate(stepsPerSecond) { this.stepsPerSecond = stepsPerSecond; }

  extend(available) {
    const waiting = this.playing && this.step >= this.available;
    this.available = available;
    if (waiting && this.step === 0 && available > 0) this.seek(1, true); // the first step at once
  }

  get step() { return Math.floor(this.at); }

  seek(step, keepPlaying = false) {
    this.at = Math.max(0, Math.min(step, this.available));
    if (!keepPlaying) this.playing = false;
    this.#tell();
  }

  play() {
    if (this.playing) return;
    if (this.step >= this.steps) this.at = 0;
    this.playing = true;
    this.#tell();
    let before = performance.now();
    const tick = (now) => {
      if (!this.playing) return;
      const shown = this.step;
      this.at = Math.min(this.at + ((now - before) / 1000) * this.stepsPerSecond, this.available);
      before = now;
      if (this.step >= this.steps) this.playing = false;
      if (this.step !== shown || !this.playing) this.#tell();
      if (this.playing) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  pause() { this.playing = false; this.#tell(); }

  #tell() {
    if (this.steps > 0 && this.step >= this.steps) this.arrived = true;
    this.show(this.step, this.playing);
  }
}
