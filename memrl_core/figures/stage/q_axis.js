import { boxOf, clamp, css, firstFree, mix, qColour, set, signed, svg } from "./dom.js";

// The axis of q beside the map, which is also the legend of its colours: what was selected has a lane of its own, in
// which it moves from q before to q after; the others of the pool are ticks.

const AXIS_TOP = 24;
const AXIS_BOTTOM = 16;
const BAR = 8;
const LINE = 12;
// From the line of a tick to its number: above or below it, and beyond a dot that lies on it.
const NUMBER_SHIFTS = [-3, 11, -12, 23];
// Of a dot at its largest.
const REACH = 8.5;
const LANE_TEXT = { size: 10, anchor: "middle" };
const STRONG_TEXT = { ...LANE_TEXT, weight: 650 };
// Of two labels side by side, each.
const APART = 2;
// How far a label may stand from its dot, nearest first.
const LABEL_SHIFTS = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((lines) => lines * LINE);

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
    this.numbers = ticks.map((q) => ({ q, text: svg("text", { class: "stage-caption stage-halo", "text-anchor": "end" }, this.svg, signed(q, 1)) }));
    this.layer = svg("g", {}, this.svg);
    this.dots = [];
    this.setNumbers();
  }

  // The number of each tick stands above or below its line, at the right or further left: where no dot comes to.
  setNumbers() {
    const dots = this.dots.filter((one) => one.lane >= 0).map(({ x, moved, now }) => {
      const heights = [moved.before, moved.left, now].map((q) => this.y(q));
      return [x - REACH, Math.min(...heights) - REACH, x + REACH, Math.max(...heights) + REACH];
    });
    const taken = [...dots];
    this.fixed = this.numbers.map(({ q, text }) => {
      const place = (x, shift) => {
        const at = { x, y: this.y(q) + shift };
        return { at, boxes: [boxOf(text.textContent, { ...at, anchor: "end", size: 11 })] };
      };
      const steps = Array.from({ length: 1 + Math.floor((this.width - BAR - 30) / 6) }, (_, i) => this.width - 6 * i);
      const found = firstFree([NUMBER_SHIFTS.slice(0, 2), NUMBER_SHIFTS.slice(2)].flatMap((shifts) => steps.flatMap((x) => shifts.map((shift) => place(x, shift)))), taken, [BAR + 2, 0, this.width, this.height]) ?? place(this.width, NUMBER_SHIFTS[0]);
      set(text, found.at);
      return found.boxes[0];
    });
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
    const lanes = [...new Set([...(step.decision?.selected ?? []), ...(this.model.counted(index).update?.changes ?? []).map((one) => one.memory)])];
    const wide = Math.min(39, (this.width - BAR - 10) / Math.max(1, lanes.length));
    const inPool = step.candidates.filter((one) => !one.missed).map((one) => one.memory);
    for (const n of new Set([...inPool, ...lanes])) {
      const moved = this.model.moved(index, n);
      if (!Number.isFinite(moved.before)) continue;
      const lane = lanes.indexOf(n);
      const now = this.model.now(index, n);
      const group = svg("g", { ...this.model.marks(index, n), class: lane < 0 ? "stage-tick" : "stage-lane" }, this.layer);
      const x = lane < 0 ? BAR + 4 : BAR + 6 + (lane + 0.5) * wide;
      const dot = { n, moved, now, x, lane, group };
      if (lane < 0) {
        svg("line", { x1: 0, x2: BAR + 5, y1: 0, y2: 0 }, group);
      } else {
        dot.trail = svg("line", { class: "stage-trail", x1: x, x2: x }, this.trails);
        // Where this step left it: later ones have moved it on.
        if (now !== moved.left) svg("circle", { class: "stage-q-left", cx: x, cy: this.y(moved.left), r: 4 }, group);
        dot.lead = svg("line", { class: "stage-lead", x1: x }, group);
        dot.dot = svg("circle", { cx: x, r: 6 }, group);
        dot.name = svg("text", { x, class: "stage-mini", "text-anchor": "middle" }, group, this.model.names[n]);
        dot.delta = svg("text", { x, class: "stage-mini stage-strong", "text-anchor": "middle" }, group);
      }
      group.addEventListener("pointerenter", () => this.on.hover(n));
      group.addEventListener("pointerleave", () => this.on.hover(null));
      group.addEventListener("click", () => this.on.pin(n));
      this.dots.push(dot);
    }
    this.setNumbers();
  }

  // `shown` from 0 to 1 lets the pool appear, `share` is how far q has moved.
  render(shown, share) {
    const lanes = this.dots.filter((one) => one.lane >= 0).sort((a, b) => a.lane - b.lane);
    const heights = lanes.map(({ moved }) => this.y(mix(moved.before, moved.after, share)));
    const taken = [...this.fixed, ...lanes.map(({ x }, i) => [x - 7.5, heights[i] - 7.5, x + 7.5, heights[i] + 7.5])];
    for (const one of [...this.dots.filter((other) => other.lane < 0), ...lanes]) {
      const { n, x, moved, now, lane, group, trail, dot } = one;
      const q = mix(moved.before, moved.after, share);
      set(group, { opacity: shown });
      if (lane < 0) {
        set(group, { transform: `translate(0 ${this.y(q)})` });
        continue;
      }
      const up = moved.after >= moved.before;
      const [from, to] = [this.y(moved.before), this.y(q)];
      set(trail, { y1: from, y2: to, opacity: shown });
      set(dot, { cy: to, fill: css(qColour(q, this.model.run.q, this.theme)), r: 6 + 1.5 * share * (moved.moves ? 1 : 0) });
      // What a dot moved by in this step is not how it came to where it is by now.
      const change = moved.moves && share > 0 ? `Δ${signed((moved.left - moved.before) * share, 2)}${now === moved.left ? "" : " then"}` : "";
      if (one.delta.textContent !== change) one.delta.textContent = change;
      this.label(one, x, to, up, taken);
      set(group, { "aria-label": `${this.model.labels[n]}, q ${signed(q)}` });
    }
  }

  // The name of a dot and its Δ stand above or below it, where nothing else does; further off a line leads to them.
  // Where there is no room for both the Δ goes, then the name: the stage's list of updates has them.
  label({ name, delta, lead }, x, to, up, taken) {
    const place = (withDelta, shift, above) => {
      const wide = Math.max(0, ...[name, delta].map(({ textContent: text }) => boxOf(text, { x: 0, y: 0, ...STRONG_TEXT })[2]));
      const at = clamp(x, BAR + 1 + wide + APART, this.width - wide - APART);
      const y = above ? to - 10 - shift : to + 19 + shift;
      const further = above ? y - LINE : y + LINE;
      const apart = ([left, top, right, bottom]) => [left - APART, top, right + APART, bottom];
      const boxes = [apart(boxOf(name.textContent, { x: at, y, ...LANE_TEXT }))];
      if (withDelta) boxes.push(apart(boxOf(delta.textContent, { x: at, y: further, ...STRONG_TEXT })));
      return { boxes, withDelta, shift, at, y, further, end: above ? y + 3 : y - 9 };
    };
    const sides = up ? [true, false] : [false, true];
    const places = (delta.textContent ? [true, false] : [false]).flatMap((both) => LABEL_SHIFTS.flatMap((shift) => sides.map((above) => place(both, shift, above))));
    const found = firstFree(places, taken, [BAR, 0, this.width, this.height]);
    set(name, { x: found?.at ?? x, y: found?.y ?? to, display: found ? "inline" : "none" });
    set(delta, { x: found?.at ?? x, y: found?.further ?? to, display: found?.withDelta ? "inline" : "none" });
    set(lead, { x2: found?.at ?? x, y1: to, y2: found?.end ?? to, display: found?.shift ? "inline" : "none" });
  }
}
