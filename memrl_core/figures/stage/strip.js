import { boxOf, clamp, css, el, firstFree, outcomeColour, set, svg, themeOf } from "./dom.js";

// The strip of a run (memrl_core/figures/stage/strip.py): a cell a step, or a bin of several where there are many. Above
// the line, success; below, failure. It is a slider for the keyboard; the ruler below it takes a window of steps.

const OUTCOME_OF = ["unrated", "success", "failure"];
const [BY_HAND, EMPTY_POOL, INVALID] = [4, 8, 16];
const LEAST = 3.5;
const WIDEST = 28;
const HIGH = 26;
const RULER = 13;
const MIDDLE = HIGH / 2;
// The row of the run that this one was rewound from.
const GHOST = 8;
const TALL = MIDDLE - 3;

export class RunStrip {
  constructor(parent, on) {
    this.on = on;
    this.root = set(el("div", "strip", parent), { "data-testid": "strip" });
    this.film = set(el("button", "strip-button", this.root, "▶ Film"), { type: "button", "data-testid": "film", title: "Play the whole run as a film" });
    this.film.addEventListener("click", () => this.on.film?.());
    this.track = set(el("div", "strip-track", this.root), { role: "slider", tabindex: 0, "aria-label": "Steps of the run" });
    this.svg = svg("svg", { "aria-hidden": "true" }, this.track);
    this.readout = set(el("div", "strip-window", this.root), { "aria-live": "polite" });
    this.readout.hidden = true;
    this.at = null;
    this.chosen = null;
    this.listen();
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.track);
  }

  destroy() {
    this.watcher.disconnect();
  }

  // `newest` is the step under way, where it is beyond the last finished one.
  update(data, at, newest = 0) {
    const same = this.data && this.data.cells === data.cells && this.newest === newest && this.data.first === data.first;
    Object.assign(this, { data, newest });
    this.numbers = data.steps ?? Array.from({ length: data.cells.length }, (_, i) => data.first + i);
    this.bits = Uint8Array.from(data.cells, (cell) => cell.charCodeAt(0) - 48);
    if (newest > (this.numbers.at(-1) ?? 0)) this.numbers = [...this.numbers, newest];
    this.film.disabled = !data.cells;
    const { steps = [], cells = "" } = data.ghost ?? {};
    this.ghost = steps.map((step, i) => ({ step, bits: cells.charCodeAt(i) - 48 }));
    // Steps that the old run had and this one has not reached.
    this.beyond = this.ghost.filter(({ step }) => step > (this.numbers.at(-1) ?? 0)).length;
    this.low = HIGH + (this.ghost.length ? GHOST : 0);
    this.track.style.height = `${this.low + RULER}px`;
    if (!same) this.choose(null);
    this.at = at;
    this.draw();
  }

  // The place of a step: of one that is not there, that of the step before it.
  placeOf(step) {
    let [low, high] = [0, this.numbers.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.numbers[middle] <= step) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  show(step) {
    if (this.at === step) return;
    this.at = step;
    this.mark();
  }

  // --- drawing ----------------------------------------------------------------------------------------------------

  draw() {
    if (!this.data) return;
    const width = this.track.clientWidth;
    const theme = themeOf(this.root);
    const key = [this.data.cells, this.numbers.length, this.data.ghost?.cells, width, theme].join();
    if (!width || key === this.drawn) return this.mark();
    this.drawn = key;
    set(this.root, { "data-theme": theme });
    const { low } = this;
    const n = this.numbers.length;
    const all = n + this.beyond;
    this.per = Math.max(1, Math.ceil((all * LEAST) / width));
    this.wide = Math.min(WIDEST, width / Math.max(1, Math.ceil(all / this.per)));
    set(this.svg, { viewBox: `0 0 ${width} ${low + RULER}`, width, height: low + RULER });
    this.svg.replaceChildren();
    const end = this.wide * Math.ceil(n / this.per);
    svg("rect", { class: "strip-ruler", x: 0, y: low, width: end, height: RULER }, this.svg);
    svg("line", { class: "strip-line", x1: 0, x2: end, y1: MIDDLE, y2: MIDDLE }, this.svg);
    this.windowBox = svg("rect", { class: "strip-chosen", y: 0, height: low + RULER }, this.svg);
    for (let from = 0; from < n; from += this.per) this.cell(from, Math.min(n, from + this.per), theme);
    this.ghosts(theme);
    this.lines();
    this.cursor = svg("rect", { class: "strip-cursor", y: 0.5, height: HIGH - 1, rx: 2 }, this.svg);
    this.mark();
  }

  // The steps from one place to before another, as one cell.
  cell(from, to, theme) {
    const { bits, wide, numbers } = this;
    const x = (from / this.per) * wide;
    const count = [0, 0, 0];
    let [hand, empty, invalid] = [0, 0, 0];
    const done = Math.min(to, bits.length);
    for (let i = from; i < done; i++) {
      count[bits[i] & 3] += 1;
      if (bits[i] & BY_HAND) hand += 1;
      if (bits[i] & EMPTY_POOL) empty += 1;
      if (bits[i] & INVALID) invalid += 1;
    }
    const all = done - from;
    const said = [];
    const one = to - from === 1;
    const group = svg("g", { class: "strip-cell", "data-step": numbers[from] }, this.svg);
    if (!one) set(group, { "data-last": numbers[to - 1] });
    svg("rect", { class: "strip-hit", x, y: 0, width: wide, height: HIGH }, group);
    const gap = wide > 3 ? 1 : 0;
    const bar = (outcome, share) => {
      if (!share) return;
      const colour = css(outcomeColour(OUTCOME_OF[outcome], theme));
      const tall = outcome ? Math.max(1.5, TALL * share) : 3;
      const top = outcome === 1 ? MIDDLE - tall : outcome === 2 ? MIDDLE : MIDDLE - 1.5;
      const hollow = all > 0 && empty > all / 2;
      const inset = hollow ? 0.6 : 0;
      svg("rect", { x: x + gap / 2 + inset, y: top + inset, width: Math.max(0.8, wide - gap - 2 * inset), height: Math.max(0.8, tall - 2 * inset), ...(hollow ? { fill: "none", stroke: colour, "stroke-width": 1.2 } : { fill: colour }) }, group);
    };
    if (!all) {
      set(group, { "data-state": "under way" });
      svg("rect", { class: "strip-under-way", x: x + 1, y: MIDDLE - 4, width: Math.max(1, wide - 2), height: 8 }, group);
      said.push("under way");
    } else {
      if (one) set(group, { "data-outcome": OUTCOME_OF[bits[from] & 3] });
      bar(1, count[1] / all);
      bar(2, count[2] / all);
      if (!count[1] && !count[2]) bar(0, 1);
      said.push(one ? OUTCOME_OF[bits[from] & 3] : `${count[1]} of ${all} succeeded, ${count[2]} failed`);
    }
    const mark = (has, name, text, draw) => {
      if (!has) return;
      set(group, { [`data-${name}`]: has });
      said.push(one ? text : `${has} ${text}`);
      draw?.();
    };
    mark(hand, "by-hand", "rewarded by hand", () => {
      const side = count[2] > count[1] ? HIGH - 4 : 4;
      svg("circle", { class: "strip-by-hand", cx: x + wide / 2, cy: side, r: 3 }, group);
    });
    mark(empty, "empty-pool", "with an empty pool");
    mark(invalid, "invalid", "with an answer that is not on the list", () => {
      const [left, y] = [x + wide / 2 - 2, MIDDLE - 2];
      svg("path", { class: "strip-invalid", d: `M${left},${y}l4,4m-4,0l4,-4` }, group);
    });
    svg("title", {}, group, `${one ? `Step ${numbers[from]}` : `Steps ${numbers[from]} to ${numbers[to - 1]}`}: ${said.join(", ")}`);
  }

  // The old run from the step on that was gone back to, faint, below the steps that took its place: of several steps in
  // one cell the share that succeeded.
  ghosts(theme) {
    const bins = new Map();
    const last = this.numbers.length - 1;
    let beyond = 0;
    for (const one of this.ghost) {
      const place = one.step > (this.numbers[last] ?? 0) ? last + (beyond += 1) : this.placeOf(one.step);
      const at = Math.floor(place / this.per);
      bins.set(at, [...(bins.get(at) ?? []), one]);
    }
    for (const [at, ones] of bins) {
      const group = svg("g", { class: "strip-ghost", "data-ghost-step": ones[0].step }, this.svg);
      const [x, gap] = [at * this.wide, this.wide > 3 ? 1 : 0];
      svg("rect", { class: "strip-hit", x, y: HIGH, width: this.wide, height: GHOST }, group);
      const count = [0, 1, 2].map((outcome) => ones.filter(({ bits }) => (bits & 3) === outcome).length);
      const most = count.indexOf(Math.max(...count));
      const tall = most === 0 ? 2 : 5;
      svg("rect", { x: x + gap / 2, y: HIGH + (most === 2 ? GHOST - tall : 1), width: Math.max(0.8, this.wide - gap), height: tall, fill: css(outcomeColour(OUTCOME_OF[most], theme)), "fill-opacity": 0.45 }, group);
      const [first, end] = [ones[0].step, ones.at(-1).step];
      const said = first === end ? `step ${first}: ${OUTCOME_OF[most]}` : `steps ${first} to ${end}: ${count[1]} of ${ones.length} succeeded`;
      svg("title", {}, group, `${this.data.ghost.run}, which this run was rewound from, ${said}${this.on.ghost ? "; a click opens it" : ""}`);
    }
  }

  // Where an epoch begins and where the world shifts; a name only where it has room.
  lines() {
    const width = this.track.clientWidth;
    const last = this.numbers.at(-1) ?? 0;
    const placeOf = (step) => (step > last ? this.numbers.length : this.placeOf(step));
    const all = this.data.lines.map(([step, kind, text]) => ({ x: Math.min((placeOf(step) / this.per) * this.wide, width - 1), kind, text }));
    // Of epochs that lie closer than a few pixels the lines would cover the cells.
    const dense = all.filter(({ kind }) => kind === "epoch").length * 8 > width;
    const shown = all.filter(({ kind }) => kind !== "epoch" || !dense).sort((a, b) => (b.kind === "shift") - (a.kind === "shift"));
    const taken = [];
    for (const { x, kind, text } of shown) {
      const line = svg("line", { class: `strip-${kind}`, x1: x, x2: x, y1: 0, y2: this.low + RULER }, this.svg);
      svg("title", {}, line, text);
      const name = { x: x + 3, y: this.low + RULER - 3, size: 10 };
      if (firstFree([{ boxes: [boxOf(text, name)] }], taken, [0, 0, width, 2 * HIGH])) svg("text", { class: "strip-name", x: name.x, y: name.y }, this.svg, text);
    }
  }

  // The step that is shown, and the window.
  mark() {
    if (!this.cursor || !this.numbers.length) return set(this.track, { "aria-disabled": true, "aria-valuemin": 0, "aria-valuemax": 0, "aria-valuenow": 0, "aria-valuetext": "no step yet" });
    const at = this.placeOf(this.at ?? this.numbers.at(-1));
    const cell = Math.floor(at / this.per);
    set(this.cursor, { x: cell * this.wide - 0.5, width: Math.max(4, this.wide + 1) });
    for (const other of this.svg.querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
    const node = [...this.svg.querySelectorAll(".strip-cell")][cell];
    if (node) set(node, { "aria-current": "step" });
    const bits = this.bits[at];
    const said = bits === undefined ? "under way" : [OUTCOME_OF[bits & 3], bits & BY_HAND ? "by hand" : "", bits & EMPTY_POOL ? "empty pool" : "", bits & INVALID ? "invalid answer" : ""].filter(Boolean).join(", ");
    this.track.removeAttribute("aria-disabled");
    set(this.track, { "aria-valuemin": this.numbers[0], "aria-valuemax": this.numbers.at(-1), "aria-valuenow": this.numbers[at], "aria-valuetext": `step ${this.numbers[at]}, ${said}` });
    const [from, to] = this.chosen ?? [0, -1];
    const left = Math.floor(from / this.per) * this.wide;
    set(this.windowBox, { x: left, width: this.chosen ? Math.max(2, (Math.floor(to / this.per) + 1) * this.wide - left) : 0 });
  }

  // --- what a person does -----------------------------------------------------------------------------------------

  listen() {
    const placeAt = (event) => {
      const box = this.track.getBoundingClientRect();
      return clamp(Math.floor(((event.clientX - box.left) / this.wide) * this.per), 0, this.numbers.length - 1);
    };
    let drag = null;
    this.track.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const ghost = event.target.closest?.("[data-ghost-step]");
      if (ghost) return this.on.ghost?.(this.data.ghost.run, Number(ghost.dataset.ghostStep));
      if (!this.numbers?.length) return;
      const place = placeAt(event);
      const below = event.clientY - this.track.getBoundingClientRect().top > this.low;
      drag = event.shiftKey || below ? { from: place } : {};
      this.track.setPointerCapture(event.pointerId);
      if (drag.from === undefined) this.go(place, false);
      else this.choose(null);
    });
    this.track.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const place = placeAt(event);
      if (drag.from === undefined) this.go(place, false);
      else this.choose([Math.min(drag.from, place), Math.max(drag.from, place)]);
    });
    const end = () => {
      if (drag && drag.from === undefined) this.on.step?.(this.at, true);
      drag = null;
    };
    this.track.addEventListener("pointerup", end);
    this.track.addEventListener("pointercancel", end);
    this.track.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.numbers?.length) return;
      const at = this.placeOf(this.at ?? Infinity);
      const last = this.numbers.length - 1;
      const far = Math.max(10, this.per);
      const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - far, PageUp: at + far, Home: 0, End: last }[event.key];
      if (event.key === "Escape" && this.chosen) this.choose(null);
      else if (to === undefined) return;
      else {
        const place = clamp(to, 0, last);
        if (event.shiftKey) {
          this.anchor = this.chosen ? this.anchor : at;
          this.choose([Math.min(this.anchor, place), Math.max(this.anchor, place)]);
        }
        this.go(place, true);
      }
      event.preventDefault();
      event.stopPropagation();
    });
  }

  // `settled`: not amid a drag.
  go(place, settled) {
    const step = this.numbers[place];
    if (step === this.at) return;
    this.show(step);
    this.on.step?.(step, settled);
  }

  choose(places) {
    this.chosen = places;
    this.readout.hidden = !places;
    this.readout.replaceChildren();
    this.mark();
    if (!places) return;
    const [from, to] = places;
    const rated = this.bits.slice(from, to + 1).filter((bits) => bits & 3);
    const won = rated.filter((bits) => (bits & 3) === 1).length;
    const share = rated.length ? `: ${won} of ${rated.length} succeeded, ${Math.round((100 * won) / rated.length)} %` : ": none rated";
    el("span", "", this.readout, `Steps ${this.numbers[from]}–${this.numbers[to]}${share}`);
    const button = (text, name, act) => set(el("button", "strip-button", this.readout, text), { type: "button", title: name, "aria-label": name }).addEventListener("click", act);
    if (this.on.list) button("List", "These steps as a table, on the screen Steps", () => this.on.list(this.numbers[from], this.numbers[to]));
    button("✕", "No window", () => this.choose(null));
  }
}
