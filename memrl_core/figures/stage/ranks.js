import { reranked, selectedAt } from "./phase_b.js";
import { boxOf, clamp, css, ease, ending, fixed, linesOf, qColour, set, shortened, signed, svg } from "./dom.js";

// The pool and the rerank on one grid of rows: a bar of similarity in phase A's rank, a slope to phase B's rank, and
// there both parts of the score.

const TOP = 40;
const BOTTOM = 22;
const TALLEST = 34;
const READABLE = 11;
// Rows that stand closer than this have smaller letters, or their lines would touch.
const CLOSE = 15;
const GAP = 12;
const SPEED = 14;

export class Ranks {
  constructor(parent, on) {
    this.on = on;
    this.svg = svg("svg", { class: "stage-ranks-picture", role: "group", "aria-label": "Pool and rerank" }, parent);
    this.rows = [];
  }

  layout(width, height, model, theme) {
    Object.assign(this, { width, height, model, theme });
    set(this.svg, { viewBox: `0 0 ${width} ${height}`, width, height });
    const slim = width < 460;
    const at = (share) => Math.round(width * share);
    // One width for all steps, so that no axis moves.
    const longest = this.longest(slim);
    const wide = 19 + 7.4 * longest;
    // Long names leave the slopes less, so that the bars behind them can still be read.
    const b = longest > 10 ? 0.56 : 0.62;
    const [name, between] = [(slim ? 4 : 8) + 7 * this.digits(), slim ? 14 : 24];
    // From the left: rank and name, bar, its number, the slope, rank and name again, both parts, the score.
    this.x = slim
      ? { name, bar: name + wide, barEnd: at(0.33), slope: at(0.33) + 46, slopeEnd: at(0.57), nameB: at(0.58) + between, parts: at(0.58) + between + wide, partsEnd: width - 52, end: width - 2 }
      : { name, bar: name + wide, barEnd: at(0.4), slope: at(0.4) + 48, slopeEnd: at(b), nameB: at(b) + between, parts: at(b) + between + wide, partsEnd: width - 54, end: width - 2 };
    this.slim = slim;
  }

  // Letters that the names of memories get.
  longest(slim) {
    const most = slim ? 5 : Infinity;
    let longest = 4;
    for (const step of this.model.steps) for (const one of step.candidates) longest = Math.max(longest, this.model.names[one.memory].length);
    return Math.min(most, longest);
  }

  // Digits of the lowest rank in phase A; what lies beyond k1 may be far down.
  digits() {
    const ranks = this.model.steps.flatMap((step) => step.candidates.map((one) => one.rank_a));
    return Math.max(2, String(Math.max(0, ...ranks)).length);
  }

  // `step` is the one at `index`, or that one under other settings.
  setStep(index, step) {
    const { model, x } = this;
    this.step = step;
    this.index = index;
    this.svg.replaceChildren();
    this.above = null;
    this.rows = [];
    const candidates = step.candidates;
    const pool = candidates.filter((one) => !one.missed);
    const missed = candidates.length - pool.length;
    const room = this.height - TOP - BOTTOM - (missed ? GAP : 0);
    this.tall = candidates.length ? Math.min(TALLEST, room / candidates.length) : TALLEST;
    const readable = this.tall >= READABLE;
    set(this.svg, { "data-close": this.tall < CLOSE });
    this.poolEnd = TOP + pool.length * this.tall;
    this.lines = svg("g", {}, this.svg);
    this.slopes = svg("g", {}, this.svg);
    const clip = `stage-clip-${Math.random().toString(36).slice(2)}`;
    const holder = svg("clipPath", { id: clip }, this.svg);
    svg("rect", { x: x.bar, y: -40, width: x.barEnd - x.bar - 2, height: 80 }, holder);
    this.axes(step, pool, missed);
    const chosenBySimilarity = new Set(pool.slice(0, step.decision?.selected.length ?? 0).map((one) => one.memory));
    const rests = pool.some((one) => one.rest?.length || (one.rank_b != null && !one.z));
    candidates.forEach((candidate, order) => {
      const n = candidate.memory;
      const id = model.ids[n];
      const y = candidate.missed ? this.poolEnd + GAP + (order - pool.length + 0.5) * this.tall : TOP + (order + 0.5) * this.tall;
      const group = svg("g", { class: `stage-row${candidate.missed ? " stage-missed" : ""}`, "data-memory": id, role: "button", tabindex: order ? -1 : 0, transform: `translate(0 ${y})`, "aria-label": this.spoken(candidate, step.recall?.rule) }, this.svg);
      const half = this.tall / 2;
      svg("rect", { class: "stage-hit", x: 0, y: -half, width: x.slope - 4, height: this.tall }, group);
      const bar = svg("rect", { class: "stage-bar-similarity", x: x.bar, y: -half + Math.min(4, half * 0.3), height: Math.max(1.5, this.tall - 2 * Math.min(4, half * 0.3)), width: 0, rx: 2 }, group);
      const texts = [];
      if (readable) {
        texts.push(svg("text", { class: "stage-mini stage-quiet", x: 2, y: 3.5 }, group, String(candidate.rank_a)));
        const q = candidate.q ?? model.before(index).q[n];
        if (Number.isFinite(q)) svg("rect", { x: x.bar - 7, y: -Math.min(5, half - 1.5), width: 4, height: 2 * Math.min(5, half - 1.5), rx: 1, fill: css(qColour(q, model.run.q, this.theme)) }, group);
        const longest = this.longest(this.slim);
        const name = svg("text", { class: "stage-mini stage-strong", x: x.name, y: 3.5 }, group, ending(model.names[n], longest));
        if (model.labels[n].length > longest) svg("title", {}, name, model.labels[n]);
        texts.push(name);
        const own = step.recall?.rule === "own score" && candidate.own ? `${candidate.own}${this.slim ? "" : " · "}` : "";
        if (own || !this.slim) texts.push(svg("text", { class: "stage-mini", x: x.bar + 4, y: 3.5, "clip-path": `url(#${clip})` }, group, own + (this.slim ? "" : shortened(model.intent(n), 60))));
        texts.push(svg("text", { class: "stage-mini stage-number", x: x.barEnd + 4, y: 3.5 }, group, fixed(candidate.similarity)));
        if (candidate.missed) texts.push(svg("text", { class: "stage-mini stage-quiet", x: Math.max(x.slope - 4, boxOf(fixed(candidate.similarity), { x: x.barEnd + 8, y: 0 })[2]), y: 3.5 }, group, this.slim ? "" : candidate.short));
      }
      const row = { n, candidate, order, y, group, bar, texts };
      this.listen(group, n);
      if (candidate.rank_b != null) {
        const path = svg("path", { class: "stage-slope", "data-memory": id, pathLength: 1 }, this.slopes);
        const other = svg("g", { class: "stage-row-b", "data-memory": id }, this.svg);
        svg("rect", { class: "stage-hit", x: x.slopeEnd, y: -half, width: x.end - x.slopeEnd, height: this.tall }, other);
        const b = { other, path, was: chosenBySimilarity.has(n) };
        if (readable) {
          b.rank = svg("text", { class: "stage-mini stage-quiet", x: x.nameB - 18, y: 3.5 }, other);
          svg("text", { class: "stage-mini stage-strong", x: x.nameB, y: 3.5 }, other, ending(model.names[n], this.longest(this.slim)));
          b.score = svg("text", { class: "stage-mini stage-number", x: x.end, y: 3.5, "text-anchor": "end" }, other);
        }
        const height = Math.max(1.5, this.tall - Math.min(14, half * 0.8));
        b.parts = (rests ? ["similarity", "q", "rest"] : ["similarity", "q"]).map((name) => svg("rect", { class: `stage-part-${name}`, y: -height / 2, height }, other));
        if (half > 2) b.sum = svg("circle", { class: "stage-sum", r: Math.min(3.4, half) }, other);
        for (const node of [other, path]) this.listen(node, n);
        row.b = b;
      }
      this.rows.push(row);
    });
    if (this.above) this.svg.append(this.above);
    this.settleAt(null, true);
  }

  spoken(candidate, rule) {
    const { model } = this;
    const b = candidate.rank_b == null ? "" : `, rank ${candidate.rank_b} in phase B${candidate.selected ? ", selected" : ""}`;
    return `${model.labels[candidate.memory]}, rank ${candidate.rank_a}${rule === "own score" ? `${candidate.own ? ` by ${candidate.own}` : ""}, cosine by the stored vectors` : " by similarity"} ${fixed(candidate.similarity)}${b}`;
  }

  listen(node, n) {
    node.addEventListener("pointerenter", () => this.on.hover(n));
    node.addEventListener("pointerleave", () => this.on.hover(null));
    node.addEventListener("click", () => this.on.pin(n));
  }

  axes(step, pool, missed) {
    const { x, lines } = this;
    const least = Math.min(0, ...step.candidates.map((one) => one.similarity));
    this.low = least < 0 ? -1 : 0;
    this.toBar = (value) => x.bar + ((x.barEnd - x.bar) * (value - this.low)) / (1 - this.low);
    const recall = step.recall;
    svg("text", { class: "stage-head", x: 0, y: 12 }, lines, "Phase A · pool");
    const how = recall?.rule === "own score" ? `by ${recall.signal || recall.rule}; bars: cosine by the stored vectors` : recall && recall.rule !== "similarity" ? `by ${recall.rule}` : recall ? `similarity ${recall.strict ? ">" : "≥"} δ ${fixed(recall.delta)} · k1 ${recall.k1}` : "";
    if (!this.slim) svg("text", { class: "stage-caption", x: 0, y: 28 }, lines, recall?.delta === -1 && recall.rule === "similarity" && step.origin !== "agent" ? "as it was reported" : how);
    if (step.candidates.length && recall && recall.rule === "similarity" && recall.delta > this.low && recall.delta <= 1) {
      const at = this.toBar(recall.delta);
      const end = this.poolEnd + (missed ? GAP + missed * this.tall : 0) + 2;
      svg("line", { class: "stage-gate", x1: at, x2: at, y1: TOP - 6, y2: end }, lines);
      svg("text", { class: "stage-caption", x: at, y: end + 12, "text-anchor": "middle" }, lines, "δ");
    }
    if (missed && pool.length) svg("line", { class: "stage-cut", x1: 0, x2: x.slope - 6, y1: this.poolEnd + GAP / 2, y2: this.poolEnd + GAP / 2 }, lines);
    if (!step.candidates.length || (recall && !recall.pool && !step.candidates.length)) {
      const why = step.missing[2] ?? (recall?.why || step.lines[1] || "No memory was recalled.");
      this.sentence(why, 0, x.slopeEnd - 34);
    }
    svg("text", { class: "stage-head", x: x.slopeEnd - 22, y: 12 }, lines, "Phase B · rerank");
    const { decision } = step;
    if (!decision) {
      const why = step.missing[3] ?? "";
      this.sentence(why, x.slopeEnd - 22, x.end - x.slopeEnd + 22);
      return;
    }
    const numbers = pool.flatMap((one) => [...(one.z ?? []), one.score ?? 0, ...one.rest.map((term) => term[1])].map(Math.abs));
    this.most = Math.max(1, Math.ceil(2 * Math.max(0, ...numbers)) / 2);
    const middle = (x.parts + x.partsEnd) / 2;
    this.toScore = (value) => middle + ((x.partsEnd - x.parts) / 2) * clamp(value / this.most, -1, 1);
    const ranked = pool.filter((one) => one.rank_b != null).length;
    const scored = pool.some((one) => one.score != null);
    if (!this.slim) {
      const legend = svg("text", { class: "stage-caption", x: x.slopeEnd - 22, y: 28 }, lines);
      if (decision.slides) {
        svg("tspan", { class: "stage-of-similarity" }, legend, "■ ");
        svg("tspan", {}, legend, "(1−λ)·z(similarity) ");
        svg("tspan", { class: "stage-of-q" }, legend, "■ ");
        svg("tspan", {}, legend, "λ·z(q)");
        svg("tspan", {}, legend, ` · k2 ${decision.k2}`);
      } else {
        svg("tspan", {}, legend, scored ? `the method's own score · k2 ${decision.k2}` : ranked ? "no score was reported" : "nothing to rank");
      }
    }
    if (ranked) {
      svg("line", { class: "stage-rule", x1: middle, x2: middle, y1: TOP - 6, y2: this.poolEnd + 2 }, lines);
      // Where the numbers of the ends leave no room for it, the line alone says where 0 is.
      if (this.slim || x.partsEnd - x.parts > 48) svg("text", { class: "stage-caption", x: middle, y: this.poolEnd + 14, "text-anchor": "middle" }, lines, "0");
      for (const side of this.slim ? [] : [-1, 1]) svg("text", { class: "stage-caption", x: this.toScore(side * this.most), y: this.poolEnd + 14, "text-anchor": "middle" }, lines, signed(side * this.most, 1));
    }
    if (ranked > decision.k2) {
      const y = TOP + decision.k2 * this.tall;
      this.cut = svg("line", { class: "stage-cut", x1: x.slopeEnd - 16, x2: x.end, y1: y, y2: y }, lines);
      if (!this.slim) this.above = svg("text", { class: "stage-caption stage-halo", x: x.slopeEnd - 20, y: y + 3.5, "text-anchor": "end" }, null, "k2");
    }
  }

  // Why a phase has nothing to draw, in the room that it would have taken.
  sentence(text, x, width) {
    linesOf(text, width, 11).forEach((line, i) => svg("text", { class: "stage-caption", x, y: TOP + 16 + 15 * i }, this.lines, line));
  }

  // Put phase B where it is under a λ (null: as recorded): at once, or on the way there.
  settleAt(weight, atOnce) {
    const order = reranked(this.step, weight);
    const selected = new Set(selectedAt(this.step, weight));
    const ranks = new Map(order.map((one) => [one.candidate.memory, one]));
    for (const row of this.rows) {
      const found = ranks.get(row.n);
      if (!row.b || !found) continue;
      row.b.rankNow = found.rank;
      row.b.goal = [TOP + (found.rank - 0.5) * this.tall, found.score ?? 0, ...found.parts];
      row.b.selected = selected.has(row.n);
      row.b.now = atOnce || !row.b.now ? [...row.b.goal] : row.b.now;
      if (row.b.rank) row.b.rank.textContent = String(found.rank);
      if (row.b.score) row.b.score.textContent = found.score == null ? "" : signed(found.score);
    }
  }

  // Goes on for `seconds`; whether it has still to go.
  advance(seconds) {
    const share = 1 - Math.exp(-SPEED * seconds);
    let moving = false;
    for (const { b } of this.rows) {
      if (!b) continue;
      b.goal.forEach((goal, i) => {
        const apart = goal - b.now[i];
        const near = Math.abs(apart) < (i ? 0.002 : 0.3);
        b.now[i] = near ? goal : b.now[i] + apart * share;
        moving ||= !near;
      });
    }
    return moving;
  }

  render(phases) {
    const { x, rows } = this;
    const pool = rows.filter((row) => !row.candidate.missed).length;
    for (const row of rows) {
      const come = clamp(phases[2] * (pool + 3) - Math.min(row.order, pool), 0, 1);
      if (row.come !== come) {
        row.come = come;
        const grown = this.toBar(row.candidate.similarity * ease(come));
        set(row.bar, { x: Math.min(this.toBar(0), grown), width: Math.abs(grown - this.toBar(0)).toFixed(2) });
        set(row.group, { opacity: come });
      }
      if (!row.b) continue;
      const { b } = row;
      const drawn = ease(clamp(phases[3] * 1.6 - 0.6 * (row.order / Math.max(1, pool))));
      const shown = [drawn, b.selected, ...b.now].join();
      if (b.shown === shown) continue;
      b.shown = shown;
      const [y, score, ...parts] = b.now;
      const [from, to] = [x.slope - (this.slim ? 6 : 8), x.slopeEnd - 2];
      const third = (to - from) / 3;
      set(b.path, { d: `M${from},${row.y.toFixed(2)}C${from + third},${row.y.toFixed(2)} ${to - third},${y.toFixed(2)} ${to},${y.toFixed(2)}`, opacity: drawn ? 1 : 0 });
      // A dashed line takes long to paint: only while it is drawn.
      if (drawn < 1) set(b.path, { "stroke-dasharray": "1 1", "stroke-dashoffset": (1 - drawn).toFixed(3) });
      else b.path.removeAttribute("stroke-dasharray");
      const kind = b.selected ? (b.was ? "kept" : "entered") : b.was ? "left" : "out";
      if (b.kind !== kind) {
        b.kind = kind;
        set(b.path, { "data-kind": kind });
        set(b.other, { "data-kind": kind });
      }
      set(b.other, { transform: `translate(0 ${y.toFixed(2)})`, opacity: clamp(drawn * 2 - 1) });
      let [left, right] = [0, 0];
      parts.slice(0, b.parts.length).forEach((part, i) => {
        const begin = part >= 0 ? right : left + part;
        if (part >= 0) right += part;
        else left += part;
        const [low, high] = [this.toScore(begin * drawn), this.toScore((begin + Math.abs(part)) * drawn)];
        set(b.parts[i], { x: low.toFixed(2), width: Math.max(0, high - low).toFixed(2) });
      });
      if (b.sum) set(b.sum, { cx: this.toScore(score * drawn).toFixed(2), opacity: b.score && row.candidate.score != null ? 1 : 0 });
    }
  }
}
