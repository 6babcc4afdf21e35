import { ease, ending, mix } from "./dom.js";

// The data of a stage (memrl_core/figures/stage/data.py) with what can be asked of it.

// Letters of the name of a memory: of one of a run that this one goes on from, "household-0015".
const LONGEST_NAME = 14;

export class Model {
  constructor(data) {
    this.data = data;
    this.run = data.run;
    this.steps = data.steps;
    const table = data.memories;
    this.count = table.id.length;
    this.ids = table.id;
    this.labels = table.label;
    // As all parts of the stage name them; only what is longer than these is shown by its end.
    this.names = table.label.map((label) => ending(label, LONGEST_NAME));
    this.numbers = new Map(table.id.map((id, n) => [id, n]));
    // Copies of an intent are one glyph, at the place of the oldest that has one; each copy keeps its number in it.
    this.groupOf = new Int32Array(this.count).fill(-1);
    this.placeIn = new Int32Array(this.count);
    this.groups = [];
    const byIntent = new Map();
    for (let n = 0; n < this.count; n++) {
      if (table.x[n] === null || table.x[n] === undefined) continue;
      const key = table.intent[n] ?? `#${n}`;
      let at = byIntent.get(key);
      if (at === undefined) {
        byIntent.set(key, (at = this.groups.length));
        this.groups.push({ x: table.x[n], y: table.y[n], members: [] });
      }
      this.groupOf[n] = at;
      this.placeIn[n] = this.groups[at].members.push(n) - 1;
    }
    this.placeless = this.groupOf.filter((at) => at < 0).length;
    this.states = new Map();
    this.seen = new Map();
    this.families = ranked(table.intent.map((at) => (at === null ? "" : table.intents[at][1])));
    this.runs = ranked(table.run.map((run) => run ?? ""));
    this.newest = Math.max(1, ...table.step.map((step) => step ?? 0).slice(-5000));
    this.qRange = this.rangeOfQ();
  }

  intent(n) {
    const at = this.data.memories.intent[n];
    return at === null || at === undefined ? "" : this.data.memories.intents[at][0];
  }

  family(n) {
    const at = this.data.memories.intent[n];
    return at === null || at === undefined ? "" : this.data.memories.intents[at][1];
  }

  text(n) {
    return this.data.memories.texts[n] ?? null;
  }

  // The memories most similar to it or to a copy of it, [[n, similarity]]; null where that is not known.
  nearest(n) {
    const { nearest } = this.data.memories;
    const copies = this.groups[this.groupOf[n]]?.members ?? [];
    const known = [n, ...copies].find((one) => nearest[one]);
    return known === undefined ? null : nearest[known];
  }

  // Index of a step by its number; -1 when it is not here.
  indexOf(step) {
    return this.steps.findIndex((one) => one.step === step);
  }

  // q (NaN: not seen) and visits of all memories before the step at an index began, or, of those of which the bank's q
  // is known and once the step has ended, as they are now.
  before(index) {
    const { now } = this.data.memories;
    if (this.asThen || !now || this.steps[index].next !== null) return this.begun(index);
    if (!this.seen.has(index)) {
      const state = this.begun(index);
      const q = state.q.slice();
      for (const [n, known] of Object.entries(now)) if (!Number.isNaN(q[n])) q[n] = known;
      this.seen.clear();
      this.seen.set(index, { q, visits: state.visits });
    }
    return this.seen.get(index);
  }

  begun(index) {
    if (this.states.has(index)) return this.states.get(index);
    let state;
    if (index <= 0) {
      state = { q: new Float64Array(this.count).fill(NaN), visits: new Int32Array(this.count) };
      this.data.before.forEach((known, n) => {
        if (known) [state.q[n], state.visits[n]] = known;
      });
    } else {
      let from = index - 1;
      while (from > 0 && !this.states.has(from)) from--;
      const known = this.begun(from);
      state = { q: known.q.slice(), visits: known.visits.slice() };
      for (let at = from; at < index; at++) {
        for (const [n, q, visits] of this.data.moves[this.steps[at].step] ?? []) {
          state.q[n] = q ?? NaN;
          state.visits[n] = visits;
        }
      }
    }
    if (this.states.size > 40) this.states.clear();
    this.states.set(index, state);
    return state;
  }

  // What a step's reward and update count as now or, where that is asked for, as they did when the step had ended.
  counted(index) {
    const step = this.steps[index];
    return (this.asThen && step.then) || step;
  }

  // q of a memory before a step and as the step `left` it, and visits likewise; `after` is where it is drawn at the end.
  moved(index, n) {
    const step = this.steps[index];
    const state = this.begun(index);
    const own = step.candidates.find((one) => one.memory === n);
    // A reward that came later may have given it another q than the one that it was considered with.
    const before = Number.isNaN(state.q[n]) || (this.asThen && own?.q != null) ? (own?.q ?? NaN) : state.q[n];
    const changes = this.counted(index).update?.changes.filter((one) => one.memory === n) ?? [];
    const last = changes.at(-1);
    const left = last?.after ?? before;
    const model = this;
    return {
      before: changes[0]?.before ?? before,
      left,
      get after() {
        return model.drawn(index, n, left);
      },
      visits: state.visits[n] || (own?.visits ?? 0),
      visitsAfter: last?.visits ?? state.visits[n],
      moves: changes.length > 0,
    };
  }

  // q of a memory as the bank holds it, whatever step is shown; where only a run is known, as its step leaves it.
  now(index, n) {
    if (this.asThen) return this.moved(index, n).left;
    return this.data.memories.now?.[n] ?? this.moved(index, n).left;
  }

  // Where q of a memory is drawn: on its way while it moves. What a step under way has moved is in no bank yet.
  drawn(index, n, left) {
    const goal = this.asThen || this.steps[index].next !== null ? left : (this.data.memories.now?.[n] ?? left);
    const from = this.swing?.from.get(n);
    return from === undefined ? goal : mix(from, goal, ease(this.swing.share));
  }

  // What marks a node as a memory's, with its q where that is known.
  marks(index, n) {
    const q = this.now(index, n);
    return { "data-memory": this.ids[n], ...(Number.isFinite(q) ? { "data-q": q } : {}) };
  }

  // How the q of a memory came about up to and with a step: [[step, q]].
  history(index, n) {
    const known = this.data.memories.histories?.[n];
    const upTo = this.steps[index].step;
    if (known?.length) return known.filter(([step]) => step <= upTo);
    const points = [];
    const first = this.data.before[n];
    if (first) points.push([this.steps[0].step - 1, first[0]]);
    for (let at = 0; at <= index; at++) {
      for (const [m, q] of this.data.moves[this.steps[at].step] ?? []) {
        if (m === n && q !== null) points.push([this.steps[at].step, q]);
      }
    }
    const update = this.moved(index, n);
    if (update.moves && points.at(-1)?.[0] !== upTo) points.push([upTo, update.left]);
    return points;
  }

  // The ends of the axis of q: those of the rewards, and beyond where a q is.
  rangeOfQ() {
    let [low, middle, high] = this.run.q;
    const look = (q) => {
      if (q === null || !Number.isFinite(q)) return;
      low = Math.min(low, q);
      high = Math.max(high, q);
    };
    this.data.before.forEach((known) => known && look(known[0]));
    for (const moves of Object.values(this.data.moves)) for (const [, q] of moves) look(q);
    return [low, middle, high];
  }
}

// Names by how often they come, most first.
function ranked(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
}
