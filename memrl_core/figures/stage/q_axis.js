import { clamp, css, ending, mix, qColour, set, signed, svg } from "./dom.js";

// The axis of q beside the map, which is also the legend of its colours: what was selected has a lane of its own, in
// which it moves from q before to q after; the others of the pool are ticks.

const AXIS_TOP = 22;
const AXIS_BOTTOM = 16;
const BAR = 8;

export class QAxis {
  constructor(parent, on) {
    this.on = on;
    this.svg = svg("svg", { class: "stage-q", role: "group", "aria-label": "q of the pool, before and after" }, parent);
    this.dots = [];
  }

  layout(width, height, model, theme) {
    Object.assign(this, { width, height, model, theme });
    set(this.svg, { viewBox: `0 0 ${width} ${height}`, width, height });
    this.svg.replaceChildren();
    const [low, middle, high] = model.run.q;
    const [least, , most] = model.qRange;
    this.range = [least, most];
    svg("text", { x: 0, y: 12, class: "stage-caption" }, this.svg, "q");
    const steps = 48;
    const tall = (height - AXIS_TOP - AXIS_BOTTOM) / steps;
    for (let i = 0; i < steps; i++) {
      const q = mix(most, least, (i + 0.5) / steps);
      svg("rect", { x: 0, y: AXIS_TOP + i * tall, width: BAR, height: tall + 0.5, fill: css(qColour(q, model.run.q, theme)) }, this.svg);
    }
    const ticks = [...new Set([least, low, middle, high, most])];
    for (const q of ticks) svg("line", { x1: 0, x2: width, y1: this.y(q), y2: this.y(q), class: "stage-rule" }, this.svg);
    // A trail that crosses the number of a tick goes behind it.
    this.trails = svg("g", {}, this.svg);
    for (const q of ticks) svg("text", { x: width, y: this.y(q) - 3, class: "stage-caption stage-halo", "text-anchor": "end" }, this.svg, signed(q, 1));
    this.layer = svg("g", {}, this.svg);
  }

  y(q) {
    const [least, most] = this.range;
    return mix(this.height - AXIS_BOTTOM, AXIS_TOP, clamp((q - least) / (most - least || 1)));
  }

  setStep(index) {
    const step = this.model.steps[index];
    this.layer.replaceChildren();
    this.trails.replaceChildren();
    this.dots = [];
    const lanes = [...new Set([...(step.decision?.selected ?? []), ...(step.update?.changes ?? []).map((one) => one.memory)])];
    const wide = Math.min(39, (this.width - BAR - 10) / Math.max(1, lanes.length));
    this.roomy = wide > 32;
    const inPool = step.candidates.filter((one) => !one.missed).map((one) => one.memory);
    for (const n of new Set([...inPool, ...lanes])) {
      const moved = this.model.moved(index, n);
      if (!Number.isFinite(moved.before)) continue;
      const lane = lanes.indexOf(n);
      const now = this.model.now(index, n);
      const group = svg("g", { ...this.model.marks(index, n), class: lane < 0 ? "stage-tick" : "stage-lane" }, this.layer);
      const x = lane < 0 ? BAR + 4 : BAR + 6 + (lane + 0.5) * wide;
      const dot = { n, moved, x, lane, group };
      if (lane < 0) {
        svg("line", { x1: 0, x2: BAR + 5, y1: 0, y2: 0 }, group);
      } else {
        dot.trail = svg("line", { class: "stage-trail", x1: x, x2: x }, this.trails);
        // Later steps have moved it on from here.
        if (now !== moved.after) svg("circle", { class: "stage-q-now", cx: x, cy: this.y(now), r: 4 }, group);
        dot.dot = svg("circle", { cx: x, r: 6 }, group);
        dot.name = svg("text", { x, class: "stage-mini", "text-anchor": "middle" }, group, ending(this.model.labels[n], this.roomy ? 5 : 3));
        dot.delta = svg("text", { x, class: "stage-mini stage-strong", "text-anchor": "middle" }, group);
      }
      group.addEventListener("pointerenter", () => this.on.hover(n));
      group.addEventListener("pointerleave", () => this.on.hover(null));
      group.addEventListener("click", () => this.on.pin(n));
      this.dots.push(dot);
    }
  }

  // `shown` from 0 to 1 lets the pool appear, `share` is how far q has moved.
  render(shown, share) {
    // Of two neighbours at the same height one writes its Δ a line further, or they would run into each other.
    let beside = null;
    for (const { n, moved, lane, group, trail, dot, name, delta } of this.dots.toSorted((a, b) => a.lane - b.lane)) {
      const q = mix(moved.before, moved.after, share);
      set(group, { opacity: shown });
      if (lane < 0) {
        set(group, { transform: `translate(0 ${this.y(moved.before)})` });
        continue;
      }
      const up = moved.after >= moved.before;
      const [from, to] = [this.y(moved.before), this.y(q)];
      set(trail, { y1: from, y2: to, opacity: shown });
      set(dot, { cy: to, fill: css(qColour(q, this.model.run.q, this.theme)), r: 6 + 1.5 * share * (moved.moves ? 1 : 0) });
      // Beyond the ends of the axis no name can be read.
      const above = to < AXIS_TOP + 30 ? false : up || to > this.height - AXIS_BOTTOM - 30;
      set(name, { y: above ? to - 10 : to + 18 });
      const further = beside && beside.above === above && !beside.further && Math.abs(beside.to - to) < 11 ? 11 : 0;
      beside = { above, further, to };
      set(delta, { y: above ? to - 20 - further : to + 29 + further });
      const text = this.roomy && moved.moves && share > 0 ? `Δ${signed((moved.after - moved.before) * share, 2)}` : "";
      if (delta.textContent !== text) delta.textContent = text;
      set(group, { "aria-label": `${this.model.labels[n]}, q ${signed(q)}` });
    }
  }
}
