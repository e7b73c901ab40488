// The clock of a run: which step is shown. It follows a stream at its own pace and replays it at any speed.

export class Player {
  constructor(show) {
    this.show = show; // (step, playing)
    this.load(1);
  }

  /** A new run of so many steps, of which some may be there already; `ended` says that no more will come. */
  load(steps, available = 0, ended = false) {
    Object.assign(this, { steps, available, ended, at: 0, playing: false, arrived: false });
    this.show(0, false);
  }

  set rate(stepsPerSecond) { this.stepsPerSecond = stepsPerSecond; }

  extend(available) {
    const waiting = this.playing && this.step >= this.available;
    this.available = available; // steps that both sides have reached
    if (waiting && this.step === 0 && available > 0) this.seek(1, true); // the first step at once
  }

  /** No more steps will come: whoever plays stops at the last one that is there. */
  end() {
    this.ended = true;
    if (this.step >= this.last) this.playing = false;
    this.#tell();
  }

  get step() { return Math.floor(this.at); }
  get last() { return this.ended ? this.available : this.steps; }

  seek(step, keepPlaying = false) {
    this.at = Math.max(0, Math.min(step, this.available));
    if (!keepPlaying) this.playing = false;
    this.#tell();
  }

  play() {
    if (this.playing || this.last === 0) return;
    if (this.step >= this.last) this.at = 0;
    this.playing = true;
    this.#tell();
    let before = performance.now();
    const tick = (now) => {
      if (!this.playing) return;
      const shown = this.step;
      this.at = Math.min(this.at + (Math.max(0, now - before) / 1000) * this.stepsPerSecond, this.available);
      before = now;
      if (this.step >= this.last) this.playing = false;
      if (this.step !== shown || !this.playing) this.#tell();
      if (this.playing) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  pause() { this.playing = false; this.#tell(); }

  #tell() {
    if (this.available > 0 && this.step >= this.last) this.arrived = true; // has the end been on show?
    this.show(this.step, this.playing);
  }
}
