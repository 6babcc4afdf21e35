import { boxOf, clamp, css, el, fixed, outcomeColour, qColour, set, themeOf } from "./dom.js";

// The run as a film (memrl_core/figures/stage/film.py): above each memory's step its q, on the map its colour, below both
// the share of successes. What is drawn is a function of how many steps have ended; a click opens the step it stands at.

const TINTS = 64;
// More dots than these are squares written into the pixels of the picture.
const MANY = 4000;
const EDGE = 10;
const LEFT = 44;
// Pixels at the right for the numbers of the axis.
const RIGHT = 34;
const SETTLE = 9;
const COOL = 2.5;
const CUT = 1000;
// Seconds that one frame may take of the film: late frames skip steps. A window that was hidden goes on where it was.
const LATEST = 1;
// Steps a second, however few there are.
const SLOWEST = 0.5;
const GOLDEN_ANGLE = 2.399963229728653;
export const [SHORTEST, LONGEST, USUAL] = [10, 60, 20];

export class Film {
  // `placeOf` gives the place of a memory on the map by its id, or null; `strip` is the strip of the run.
  constructor(parent, { film, strip, q, placeOf, onOpen, onClose }) {
    Object.assign(this, { q, onOpen, onClose, strip });
    const bytes = Uint8Array.from(atob(film.moves), (sign) => sign.charCodeAt(0));
    const { count } = film;
    this.after = new Float64Array(bytes.buffer, 0, count);
    this.stepOf = new Int32Array(bytes.buffer, 8 * count, count);
    this.memoryOf = new Int32Array(bytes.buffer, 12 * count, count);
    this.ids = film.ids;
    this.size = film.ids.length;
    this.numbers = strip.steps ?? Array.from({ length: strip.cells.length }, (_, i) => strip.first + i);
    this.total = this.numbers.length;
    this.outcomes = Uint8Array.from(strip.cells, (cell) => (cell.charCodeAt(0) - 48) & 3);
    this.gone = new Int32Array(this.size).fill(2 ** 31 - 1);
    for (const [memory, step] of film.gone) this.gone[memory] = step;
    this.leaving = film.gone.map(([memory]) => memory);
    this.born = new Float64Array(this.size).fill(NaN);
    for (let i = count - 1; i >= 0; i--) this.born[this.memoryOf[i]] = this.stepOf[i];
    this.places = film.ids.map(placeOf);
    const moves = new Uint32Array(this.size);
    for (const n of this.memoryOf) moves[n] += 1;
    this.order = Uint32Array.from(moves.keys()).sort((a, b) => moves[a] - moves[b]);
    this.target = new Float64Array(this.size).fill(NaN);
    this.shown = new Float64Array(this.size).fill(NaN);
    this.heat = new Float32Array(this.size);
    this.shade = new Uint8Array(this.size);
    this.measureQ();
    this.measureSuccess();
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.seconds = USUAL;
    this.frames = 0;
    this.build(parent);
    this.theme = null;
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.root);
    this.jump(0);
    this.play();
    this.root.focus({ preventScroll: true });
  }

  measureQ() {
    let [low, , high] = this.q;
    for (const value of this.after) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    this.range = [low, high];
  }

  // The share of successes among the last rated steps, as many as a twentieth of the run but ten at least.
  measureSuccess() {
    this.window = Math.max(10, Math.round(this.total / 20));
    this.success = new Float64Array(this.total).fill(NaN);
    const last = [];
    let won = 0;
    this.outcomes.forEach((outcome, i) => {
      if (outcome) {
        last.push(outcome === 1);
        won += outcome === 1;
        if (last.length > this.window) won -= last.shift();
      }
      if (last.length) this.success[i] = won / last.length;
    });
  }

  build(parent) {
    const root = (this.root = set(el("section", "film", parent), { "aria-label": "The run as a film", tabindex: -1 }));
    const head = el("div", "film-head", root);
    const button = (text, name, act) => {
      const made = set(el("button", "strip-button", head, text), { type: "button", "aria-label": name, title: name });
      made.addEventListener("click", act);
      return made;
    };
    this.playButton = button("❚❚", "Pause", () => this.toggle());
    this.slider = set(el("input", "film-slider", head), { type: "range", min: 0, max: this.total, step: 1, "aria-label": "Steps that have ended" });
    this.slider.addEventListener("input", () => {
      this.pause();
      this.jump(Number(this.slider.value));
    });
    this.said = set(el("output", "film-said", head), {});
    const speed = el("label", "film-speed", head, "in ");
    this.speed = set(el("input", "", speed), { type: "number", min: SHORTEST, max: LONGEST, step: 5, value: USUAL, "aria-label": "Seconds that the whole run takes" });
    speed.append(" s");
    this.speed.addEventListener("change", () => {
      this.seconds = clamp(Number(this.speed.value) || USUAL, SHORTEST, LONGEST);
      this.speed.value = this.seconds;
    });
    button("Open this step", "Open the step that is shown (Enter, or a click on the film)", () => this.open());
    button("✕", "Close the film (Esc)", () => this.close());
    const body = el("div", "film-body", root);
    const panel = (name, title) => {
      const box = el("figure", `film-panel ${name}`, body);
      el("figcaption", "", box, title);
      const canvas = set(el("canvas", "", box), { role: "img", "aria-label": title });
      canvas.addEventListener("click", () => this.open());
      return canvas;
    };
    this.swarm = panel("film-swarm", "q of every memory, over the step that wrote it");
    this.map = panel("film-map", "the map, coloured by q");
    this.curve = panel("film-curve", `success in the last ${this.window} rated steps`);
    root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const own = event.target.closest("button, input");
      if (event.key === "Escape") this.close();
      else if (event.key === " " && !own) this.toggle();
      else if (event.key === "Enter" && !own) this.open();
      else if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && !own) {
        this.pause();
        this.jump(Math.floor(this.position) + (event.key === "ArrowRight" ? 1 : -1));
      } else {
        // Keys of the stage below mean nothing here.
        event.stopPropagation();
        return;
      }
      event.preventDefault();
      event.stopPropagation();
    });
  }

  // --- what q is --------------------------------------------------------------------------------------------------

  // q of every memory when so many steps of the run had ended, by their place in `ids`; NaN: not known.
  qAfter(ended) {
    const q = new Float64Array(this.size).fill(NaN);
    const step = ended ? this.numbers[ended - 1] : (this.numbers[0] ?? 1) - 1;
    for (let i = 0; i < this.after.length && this.stepOf[i] <= step; i++) q[this.memoryOf[i]] = this.after[i];
    for (let n = 0; n < this.size; n++) if (this.gone[n] <= step) q[n] = NaN;
    return q;
  }

  // To where so many steps have ended, at once.
  jump(ended) {
    this.position = clamp(ended, 0, this.total);
    this.ended = Math.floor(this.position);
    this.target = this.qAfter(this.ended);
    this.shown.set(this.target);
    this.heat.fill(0);
    const step = this.ended ? this.numbers[this.ended - 1] : -Infinity;
    this.next = 0;
    while (this.next < this.after.length && this.stepOf[this.next] <= Math.max(step, (this.numbers[0] ?? 1) - 1)) this.next += 1;
    this.redraw();
  }

  // The moves of the steps that have ended since.
  advance(ended) {
    if (ended === this.ended) return;
    this.ended = ended;
    const step = this.numbers[ended - 1];
    for (; this.next < this.after.length && this.stepOf[this.next] <= step; this.next++) {
      const n = this.memoryOf[this.next];
      if (Number.isNaN(this.target[n])) this.shown[n] = this.after[this.next];
      this.target[n] = this.after[this.next];
      this.heat[n] = 1;
    }
    for (const n of this.leaving) if (this.gone[n] <= step) this.target[n] = this.shown[n] = NaN;
  }

  // --- time -------------------------------------------------------------------------------------------------------

  // Steps a second.
  get rate() {
    return Math.max(SLOWEST, this.total / this.seconds);
  }

  play() {
    if (!this.total) return;
    if (this.position >= this.total) this.jump(0);
    this.playing = true;
    this.last = null;
    if (this.still.matches) {
      clearInterval(this.clock);
      this.clock = setInterval(() => {
        this.jump(Math.min(this.total, Math.floor(this.position + Math.max(1, this.rate))));
        if (this.position >= this.total) this.pause();
      }, CUT);
    }
    this.redraw();
  }

  pause() {
    clearInterval(this.clock);
    this.playing = false;
    this.redraw();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  // The step at which the film stands, and the film is closed.
  open() {
    if (!this.total) return this.close();
    const step = this.numbers[clamp(this.ended - 1, 0, this.total - 1)];
    this.close();
    this.onOpen(step);
  }

  close() {
    this.pause();
    cancelAnimationFrame(this.frame);
    this.closed = true;
    this.watcher.disconnect();
    this.root.remove();
    this.onClose?.();
  }

  redraw() {
    if (!this.closed) this.frame ??= requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    this.frame = null;
    const seconds = this.last ? Math.min(LATEST, (now - this.last) / 1000) : 0;
    this.last = now;
    let moving = false;
    if (this.playing && !this.still.matches) {
      this.position = Math.min(this.total, this.position + seconds * this.rate);
      this.advance(Math.floor(this.position));
      if (this.position >= this.total) this.playing = false;
    }
    const [nearer, cooler] = [1 - Math.exp(-SETTLE * seconds), Math.exp(-COOL * seconds)];
    const { target, shown, heat, size } = this;
    for (let n = 0; n < size; n++) {
      const apart = target[n] - shown[n];
      if (apart) {
        shown[n] = Math.abs(apart) < 1e-3 ? target[n] : shown[n] + apart * nearer;
        moving = true;
      }
      if (heat[n] > 0.01) {
        heat[n] *= cooler;
        moving = true;
      } else heat[n] = 0;
    }
    this.draw();
    this.frames += 1;
    if (this.playing && !this.still.matches || moving) this.redraw();
  }

  // --- drawing ----------------------------------------------------------------------------------------------------

  resize() {
    this.theme = themeOf(this.root);
    this.ink = getComputedStyle(this.root).color;
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    this.colours = Array.from({ length: TINTS }, (_, i) => qColour(this.range[0] + ((i + 0.5) / TINTS) * (this.range[1] - this.range[0]), this.q, this.theme));
    for (const canvas of [this.swarm, this.map, this.curve]) {
      const [width, height] = [Math.max(40, canvas.clientWidth), Math.max(30, canvas.clientHeight)];
      Object.assign(canvas, { width: Math.round(width * this.ratio), height: Math.round(height * this.ratio) });
      canvas.inner = [width, height];
    }
    this.values = Uint32Array.from(this.colours, ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red);
    this.layout();
    this.redraw();
  }

  // Where everything lies that does not move: x of each memory in the swarm, and both on the map.
  layout() {
    const [width] = this.swarm.inner;
    const [first, last] = [(this.numbers[0] ?? 1) - 1, this.numbers.at(-1) ?? 1];
    this.x = (step) => LEFT + ((width - LEFT - RIGHT) * (step - first)) / Math.max(1, last - first);
    this.swarmX = Float64Array.from(this.born, (step) => this.x(clamp(step, first, last)));
    // What was there before the first step would be one column.
    const before = [...this.born.keys()].filter((n) => this.born[n] <= first);
    before.forEach((n, i) => (this.swarmX[n] = 6 + ((i + 0.5) / before.length) * (LEFT - 12)));
    const [wide, high] = this.map.inner;
    const known = this.places.filter(Boolean);
    const [[left, right], [bottom, top]] = [reach(known, 0), reach(known, 1)];
    const around = new Map();
    this.mapX = new Float64Array(this.size).fill(NaN);
    this.mapY = new Float64Array(this.size).fill(NaN);
    this.places.forEach((place, n) => {
      if (!place) return;
      // Copies of an intent stand around its first.
      const key = place.join();
      const i = around.get(key) ?? 0;
      around.set(key, i + 1);
      const radius = i ? 2.2 + 2.2 * Math.sqrt(i) : 0;
      const share = (value, low, most) => (most > low ? (value - low) / (most - low) : 0.5);
      this.mapX[n] = 2 * EDGE + (wide - 4 * EDGE) * share(place[0], left, right) + radius * Math.cos(i * GOLDEN_ANGLE);
      this.mapY[n] = high - 2 * EDGE - (high - 4 * EDGE) * share(place[1], bottom, top) + radius * Math.sin(i * GOLDEN_ANGLE);
    });
    this.swarmY = new Float64Array(this.size);
    this.layoutCurve();
  }

  layoutCurve() {
    const [width, high] = this.curve.inner;
    this.share = (share) => high - 4 - (high - 8) * share;
    this.successPath = new Path2D();
    // Of more steps than there are pixels one a pixel.
    const stride = Math.max(1, Math.floor(this.total / width));
    for (let i = 0; i < this.total; i += stride) if (!Number.isNaN(this.success[i])) this.successPath.lineTo(this.x(this.numbers[i]), this.share(this.success[i]));
  }

  draw() {
    if (!this.colours) return;
    const [least, most] = this.range;
    const [, high] = this.swarm.inner;
    const [bottom, span] = [high - EDGE, high - 2 * EDGE];
    this.y = (q) => bottom - (span * (q - least)) / (most - least || 1);
    let known = 0;
    const { shown, swarmY, shade, size } = this;
    for (let n = 0; n < size; n++) {
      const share = (shown[n] - least) / (most - least || 1);
      swarmY[n] = bottom - span * share;
      if (share !== share) continue; // Not known.
      known += 1;
      shade[n] = Math.min(TINTS - 1, share * TINTS);
    }
    this.drawSwarm();
    this.dots(this.cleared(this.map), this.mapX, this.mapY);
    this.drawCurve();
    const step = this.ended ? this.numbers[this.ended - 1] : 0;
    const won = this.ended ? this.success[this.ended - 1] : NaN;
    const said = `step ${step.toLocaleString("en")} of ${(this.numbers.at(-1) ?? 0).toLocaleString("en")} · ${known.toLocaleString("en")} ${known === 1 ? "memory" : "memories"}${Number.isNaN(won) ? "" : ` · success ${Math.round(100 * won)} %`}`;
    if (this.said.textContent !== said) this.said.textContent = said;
    if (document.activeElement !== this.slider || this.playing) this.slider.value = this.ended;
    const sign = this.playing ? "❚❚" : "▶";
    if (this.playButton.textContent !== sign) {
      this.playButton.textContent = sign;
      const name = this.playing ? "Pause (space)" : "Play (space)";
      set(this.playButton, { "aria-label": name, title: name });
    }
    set(this.root, { "data-step": step, "data-playing": Boolean(this.playing) });
  }

  cleared(canvas) {
    const ctx = canvas.getContext("2d", { willReadFrequently: true });
    ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    ctx.clearRect(0, 0, ...canvas.inner);
    return ctx;
  }

  drawSwarm() {
    const ctx = this.cleared(this.swarm);
    const [width, high] = this.swarm.inner;
    this.dots(ctx, this.swarmX, this.swarmY);
    ctx.font = "11px system-ui, sans-serif";
    ctx.fillStyle = this.ink;
    ctx.strokeStyle = this.ink;
    ctx.lineWidth = 1;
    const [least, most] = this.range;
    const taken = [];
    for (const q of new Set([least, ...this.q, most])) {
      const y = this.y(q);
      ctx.globalAlpha = 0.25;
      ctx.beginPath();
      ctx.moveTo(0, y);
      ctx.lineTo(width, y);
      ctx.stroke();
      ctx.globalAlpha = 0.85;
      const below = y < high / 2;
      const box = boxOf(fixed(q, 1), { x: width - 2, y: below ? y + 11 : y - 3, anchor: "end" });
      if (taken.some((other) => other < box[3] && other > box[1])) continue;
      taken.push((box[1] + box[3]) / 2);
      ctx.textAlign = "right";
      ctx.fillText(fixed(q, 1), width - 2, below ? y + 11 : y - 3);
    }
    ctx.globalAlpha = 1;
    this.uprights(ctx, high);
  }

  // Where the film stands, and where the world shifted.
  uprights(ctx, high) {
    ctx.strokeStyle = this.ink;
    for (const [step, kind] of this.strip.lines) {
      if (kind !== "shift") continue;
      ctx.setLineDash([4, 3]);
      ctx.globalAlpha = 0.6;
      ctx.beginPath();
      ctx.moveTo(this.x(step - 0.5), 0);
      ctx.lineTo(this.x(step - 0.5), high);
      ctx.stroke();
    }
    ctx.setLineDash([]);
    ctx.globalAlpha = 0.9;
    const x = this.x(this.ended ? this.numbers[this.ended - 1] : (this.numbers[0] ?? 1) - 1);
    ctx.beginPath();
    ctx.moveTo(x, 0);
    ctx.lineTo(x, high);
    ctx.stroke();
    ctx.globalAlpha = 1;
  }

  drawCurve() {
    const ctx = this.cleared(this.curve);
    const [width, high] = this.curve.inner;
    const y = this.share;
    ctx.strokeStyle = this.ink;
    ctx.fillStyle = this.ink;
    ctx.lineWidth = 1;
    ctx.font = "11px system-ui, sans-serif";
    ctx.textAlign = "right";
    for (const share of [0, 0.5, 1]) {
      ctx.globalAlpha = 0.2;
      ctx.beginPath();
      ctx.moveTo(LEFT, y(share));
      ctx.lineTo(width, y(share));
      ctx.stroke();
      ctx.globalAlpha = 0.85;
      ctx.fillText(`${100 * share} %`, LEFT - 5, clamp(y(share) + 4, 10, high - 1));
    }
    ctx.strokeStyle = css(outcomeColour("success", this.theme));
    ctx.globalAlpha = 0.3;
    ctx.stroke(this.successPath);
    ctx.globalAlpha = 1;
    if (this.ended) {
      ctx.save();
      ctx.beginPath();
      ctx.rect(0, 0, this.x(this.numbers[this.ended - 1]), high);
      ctx.clip();
      ctx.lineWidth = 2;
      ctx.stroke(this.successPath);
      ctx.restore();
    }
    this.uprights(ctx, high);
  }

  // A dot a memory, coloured by its q; one that has just moved is larger.
  dots(ctx, xs, ys) {
    const radius = clamp(5.5 * Math.sqrt(150 / Math.max(1, this.size)), 1.6, 5);
    if (this.size > MANY) return this.squares(ctx, xs, ys);
    const of = (this.byShade ??= Array.from({ length: TINTS }, () => []));
    for (const list of of) list.length = 0;
    for (let n = 0; n < this.size; n++) if (!Number.isNaN(this.shown[n]) && !Number.isNaN(xs[n])) of[this.shade[n]].push(n);
    of.forEach((list, shade) => {
      if (!list.length) return;
      ctx.fillStyle = css(this.colours[shade]);
      ctx.beginPath();
      for (const n of list) {
        const size = radius * (1 + this.heat[n]);
        ctx.moveTo(xs[n] + size, ys[n]);
        ctx.arc(xs[n], ys[n], size, 0, 2 * Math.PI);
      }
      ctx.fill();
    });
  }

  squares(ctx, xs, ys) {
    const { canvas } = ctx;
    const { width, height } = canvas;
    if (canvas.image?.width !== width || canvas.image.height !== height) {
      canvas.image = ctx.createImageData(width, height);
      canvas.pixels = new Uint32Array(canvas.image.data.buffer);
    }
    const { pixels } = canvas;
    const { order, shown, heat, shade, values, ratio, size } = this;
    pixels.fill(0);
    // What no reward has moved lies below. Plain loops: what is made here is made of every memory in every frame.
    for (let i = 0; i < size; i++) {
      const n = order[i];
      if (shown[n] !== shown[n] || xs[n] !== xs[n]) continue;
      const half = ((1 + 2 * heat[n]) * ratio + 0.5) | 0;
      const x = (xs[n] * ratio + 0.5) | 0;
      const y = (ys[n] * ratio + 0.5) | 0;
      if (x < half || y < half || x + half >= width || y + half >= height) continue;
      const value = values[shade[n]];
      for (let row = y - half; row <= y + half; row++) {
        const end = row * width + x + half;
        for (let at = row * width + x - half; at <= end; at++) pixels[at] = value;
      }
    }
    ctx.putImageData(canvas.image, 0, 0);
  }
}

// The least and the greatest of a coordinate.
function reach(places, axis) {
  let [low, high] = [Infinity, -Infinity];
  for (const place of places) {
    low = Math.min(low, place[axis]);
    high = Math.max(high, place[axis]);
  }
  return [low, high];
}
