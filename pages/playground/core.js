// The world, the memory and the agent of the playground: the twin of memrl_core/lessons/world.py, number for number.
//
// Both use only operations that IEEE 754 defines to the last bit (+ − × ÷ √), in the same order, and the same generator.

const WAYS = 4;
const CHANCES = [0.9, 0.4, 0.2, 0.1];
const GRID = 1048576;
const DRAWS = { way: 1, roll: 2, order: 3, change: 4, changed: 5, rolled: 6, explore: 7, model: 8, luck: 9, sample: 10, jitter: 11, replay: 20, slate: 32 };

// --- the generator ----------------------------------------------------------------------------------------------------

function mixed(x) {
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}

// A number from 0 to 1, by what it is drawn for alone: whatever else is drawn, or not, changes nothing.
function draw(seed, step, what) {
  return mixed(mixed(mixed(seed ^ 0x9e3779b9) + step) + what) / 4294967296;
}

// The first 8 bytes of BLAKE2b (RFC 7693, digest of 8 bytes, no key) of a short text, as [high, low] of a uint64.
const SIGMA = [
  [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
  [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4], [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
  [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13], [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
  [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11], [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
  [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5], [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];
const IV = new Uint32Array([
  0xf3bcc908, 0x6a09e667, 0x84caa73b, 0xbb67ae85, 0xfe94f82b, 0x3c6ef372, 0x5f1d36f1, 0xa54ff53a,
  0xade682d1, 0x510e527f, 0x2b3e6c1f, 0x9b05688c, 0xfb41bd6b, 0x1f83d9ab, 0x137e2179, 0x5be0cd19,
]);
const COLUMNS = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15], [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];

function digest(text) {
  const m = new Uint32Array(32), v = new Uint32Array(32);
  for (let i = 0; i < text.length; i += 1) m[i >> 2] |= text.charCodeAt(i) << (8 * (i & 3));
  v.set(IV);
  v[0] ^= 0x01010008;
  v.set(IV, 16);
  v[24] ^= text.length;
  v[28] = ~v[28];
  v[29] = ~v[29];
  const h0 = v[0], h1 = v[1];
  const add = (a, low, high) => {
    const sum = v[a] + low;
    v[a + 1] += high + (sum >= 4294967296 ? 1 : 0);
    v[a] = sum;
  };
  const turn = (d, a, bits) => {
    const low = v[d] ^ v[a], high = v[d + 1] ^ v[a + 1];
    if (bits === 32) [v[d], v[d + 1]] = [high, low];
    else if (bits === 63) [v[d], v[d + 1]] = [(low << 1) | (high >>> 31), (high << 1) | (low >>> 31)];
    else [v[d], v[d + 1]] = [(low >>> bits) | (high << (32 - bits)), (high >>> bits) | (low << (32 - bits))];
  };
  for (let round = 0; round < 12; round += 1) {
    const sigma = SIGMA[round % 10];
    for (let at = 0; at < 8; at += 1) {
      const [a, b, c, d] = COLUMNS[at].map((place) => 2 * place);
      const x = 2 * sigma[2 * at], y = 2 * sigma[2 * at + 1];
      add(a, v[b], v[b + 1]);
      add(a, m[x], m[x + 1]);
      turn(d, a, 32);
      add(c, v[d], v[d + 1]);
      turn(b, c, 24);
      add(a, v[b], v[b + 1]);
      add(a, m[y], m[y + 1]);
      turn(d, a, 16);
      add(c, v[d], v[d + 1]);
      turn(b, c, 63);
    }
  }
  return [(h1 ^ v[1] ^ v[17]) >>> 0, (h0 ^ v[0] ^ v[16]) >>> 0];
}

const digests = new Map();

function digestOf(phase, seed) {
  const text = `${phase} ${seed}`;
  let found = digests.get(text);
  if (!found) digests.set(text, (found = digest(text)));
  return found;
}

const multiplied = [0, 0];

// The product of two uint64 modulo 2^64, into `multiplied` as [high, low].
function multiply(ah, al, bh, bl) {
  const a0 = al & 0xffff, a1 = al >>> 16, b0 = bl & 0xffff, b1 = bl >>> 16;
  const low = a0 * b0, middle = a1 * b0 + (low >>> 16), other = a0 * b1 + (middle & 0xffff);
  const carried = a1 * b1 + Math.floor(middle / 65536) + Math.floor(other / 65536);
  multiplied[1] = (((other & 0xffff) << 16) | (low & 0xffff)) >>> 0;
  multiplied[0] = (carried + Math.imul(ah, bl) + Math.imul(al, bh)) >>> 0;
}

// The key of a number among equals: `drawn_keys` of memrl_core.retrieval.exploration, as [high, low].
function drawnKey(number, [beginHigh, beginLow]) {
  multiply(0, number, 0x9e3779b9, 0x7f4a7c15);
  let low = multiplied[1] + beginLow;
  let high = (multiplied[0] + beginHigh + (low >= 4294967296 ? 1 : 0)) >>> 0;
  low >>>= 0;
  multiply((high ^ (high >>> 30)) >>> 0, (low ^ ((low >>> 30) | (high << 2))) >>> 0, 0xbf58476d, 0x1ce4e5b9);
  [high, low] = multiplied;
  multiply((high ^ (high >>> 27)) >>> 0, (low ^ ((low >>> 27) | (high << 5))) >>> 0, 0x94d049bb, 0x133111eb);
  [high, low] = multiplied;
  low = (low ^ ((low >>> 31) | (high << 1))) >>> 0;
  high = (high ^ (high >>> 31)) >>> 0;
  return [high >>> 1, ((low >>> 1) | (high << 31)) >>> 0];
}

const before = (a, b) => a[0] - b[0] || a[1] - b[1];

// --- arithmetic as numpy does it --------------------------------------------------------------------------------------

// numpy adds eight columns, and halves what is longer than 128.
function summed(values, from = 0, n = values.length) {
  if (n < 8) {
    let sum = 0;
    for (let i = 0; i < n; i += 1) sum += values[from + i];
    return sum;
  }
  if (n > 128) {
    const half = Math.floor(n / 2) - (Math.floor(n / 2) % 8);
    return summed(values, from, half) + summed(values, from + half, n - half);
  }
  const r = values.slice(from, from + 8);
  let i = 8;
  for (; i < n - (n % 8); i += 8) for (let j = 0; j < 8; j += 1) r[j] += values[from + i + j];
  let sum = r[0] + r[1] + (r[2] + r[3]) + (r[4] + r[5] + (r[6] + r[7]));
  for (; i < n; i += 1) sum += values[from + i];
  return sum;
}

// To nine digits, halves to the even neighbour.
function rounded(x) {
  return (x * 1e9 + 6755399441055744 - 6755399441055744) / 1e9;
}

function zscore(values) {
  const n = values.length, mean = summed(values) / n;
  const apart = values.map((value) => value - mean);
  const sd = Math.sqrt(summed(apart.map((one) => one * one)) / n);
  return apart.map((one) => (sd < 1e-9 ? 0 : one / sd));
}

// e^x by its series, halved five times: the same in every language.
function exponential(x) {
  const y = x / 32;
  let sum = 1, term = 1;
  for (let k = 1; k <= 14; k += 1) {
    term = (term * y) / k;
    sum += term;
  }
  for (let k = 0; k < 5; k += 1) sum *= sum;
  return sum;
}

// --- the world --------------------------------------------------------------------------------------------------------

// The shipped tasks, three in each of eight families: what all have in common, where the family lies on its ring, and what
// is the task's own; a unit vector.
const SHIPPED = { sizes: new Array(8).fill(3), embeddings: Array.from({ length: 24 }, (_, task) => {
  const family = Math.floor(task / 3);
  const raw = new Array(12).fill(0);
  raw[0] = 0.6;
  raw[1 + family] = 1;
  raw[1 + ((family + 1) % 8)] = 0.45;
  raw[1 + ((family + 7) % 8)] = 0.45;
  for (let i = 0; i < 3; i += 1) raw[9 + i] = 1.1 * draw(0, task, DRAWS.jitter + i) - 0.55;
  let square = 0;
  for (const one of raw) square += one * one;
  const norm = Math.sqrt(square);
  return raw.map((one) => Math.floor((one / norm) * GRID + 0.5) / GRID);
}) };
const isShifted = (family, shift) => (family + shift) % 2 === 0;

// The tasks of the world, by family after family: the shipped ones until a person brings others.
let FAMILIES, TASKS, DIMENSION, FAMILY, FIRST, ALL, CHANGED, EMBEDDINGS, SIMILARITIES, NEAREST;
function setTasks({ sizes, embeddings }) {
  [FAMILIES, TASKS, DIMENSION, EMBEDDINGS] = [sizes.length, embeddings.length, embeddings[0].length, embeddings];
  FAMILY = sizes.flatMap((size, family) => new Array(size).fill(family));
  FIRST = sizes.map((_, family) => FAMILY.indexOf(family));
  ALL = FAMILY.map((_, task) => task);
  CHANGED = ALL.filter((task) => isShifted(FAMILY[task], 0));
  // On a grid of 2^-20 the products and their sums are exact, in whatever order they are added.
  SIMILARITIES = EMBEDDINGS.map((one) => EMBEDDINGS.map((other) => {
    let product = 0;
    for (let i = 0; i < DIMENSION; i += 1) product += one[i] * other[i];
    return Math.min(Math.max(rounded(product), -1), 1);
  }));
  NEAREST = SIMILARITIES.map((row) => row.map((_, task) => task).sort((a, b) => row[b] - row[a] || a - b));
}
setTasks(SHIPPED);

const familyOf = (task) => FAMILY[task];

// Which chance each way of each family has, by rank in CHANCES: drawn at first, turned round by every change.
function firstWorld(seed) {
  return Array.from({ length: FAMILIES }, (_, family) => {
    const ranks = [0, 1, 2, 3];
    for (let i = WAYS - 1; i > 0; i -= 1) {
      const j = Math.floor(draw(seed, family * WAYS + i, DRAWS.way) * (i + 1));
      [ranks[i], ranks[j]] = [ranks[j], ranks[i]];
    }
    return ranks;
  });
}

const turned = (ranks, by) => ranks.map((_, way) => ranks[(way + by) % WAYS]);

// The tasks of an epoch, each once, in an order of its own.
function epochOf(seed, epoch, tasks) {
  const order = [...tasks];
  for (let i = order.length - 1; i > 0; i -= 1) {
    const j = Math.floor(draw(seed, epoch * TASKS + i, DRAWS.order) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

// With `held` the last task of each family never comes.
const isHeld = (task) => familyOf(task + 1) !== familyOf(task);
const tasksAt = (settings, step) => (settings.rest && step >= settings.shifts[0] ? CHANGED : ALL).filter((task) => !settings.held || !isHeld(task));

// The families that change before step `step`, each with how far its ways are turned.
function changesAt(settings, step) {
  const { seed, change, shifts } = settings, changes = [];
  shifts.forEach((at, shift) => {
    if (at !== step) return;
    for (let family = 0; family < FAMILIES; family += 1) {
      if (isShifted(family, shift)) changes.push([family, 1 + Math.floor(draw(seed, shift * FAMILIES + family, DRAWS.roll) * (WAYS - 1))]);
    }
  });
  if (draw(seed, step, DRAWS.change) < change) {
    const family = Math.floor(draw(seed, step, DRAWS.changed) * FAMILIES);
    changes.push([family, 1 + Math.floor(draw(seed, step, DRAWS.rolled) * (WAYS - 1))]);
  }
  return changes;
}

// --- the agent --------------------------------------------------------------------------------------------------------

// Phase A: at most k1 of the memories [first, …) above the gate, most similar first, seeded among equals.
function recall(memory, task, settings, stepSeed) {
  const { k1, delta } = settings, begin = digestOf("recall", stepSeed), row = SIMILARITIES[task], pool = [];
  const nearest = NEAREST[task];
  for (let i = 0; i < TASKS && pool.length < k1; ) {
    const similarity = row[nearest[i]], equals = [];
    if (!(similarity > delta)) break;
    for (; i < TASKS && row[nearest[i]] === similarity; i += 1) {
      for (const id of memory.of[nearest[i]]) if (id >= memory.first) equals.push(id);
    }
    if (equals.length > 1) {
      const keyed = equals.map((id) => [id, drawnKey(id - memory.first, begin)]);
      keyed.sort((a, b) => before(a[1], b[1]) || a[0] - b[0]);
      for (const [id] of keyed) pool.push(id);
    } else pool.push(...equals);
  }
  pool.length = Math.min(pool.length, k1);
  return pool;
}

// Phase B: the pool from the best score to the worst, with scores.
function rank(memory, task, pool, settings, stepSeed) {
  const { weight } = settings, row = SIMILARITIES[task];
  const similarity = pool.map((id) => row[memory.task[id]]);
  const bySimilarity = zscore(similarity), byQ = zscore(pool.map((id) => memory.q[id]));
  const score = pool.map((_, i) => (1 - weight) * bySimilarity[i] + weight * byQ[i]);
  const decisive = score.map(rounded), begin = digestOf("select", stepSeed), keys = new Array(pool.length);
  const key = (i) => (keys[i] ??= drawnKey(i + 1, begin));
  const order = pool.map((_, i) => i);
  order.sort((a, b) => decisive[b] - decisive[a] || similarity[b] - similarity[a] || before(key(a), key(b)) || a - b);
  return { order, score };
}

// The frozen model: does what worked in the memories it is given, and leaves what failed; among equals it draws.
function answer(memory, chosen, seed, step) {
  const votes = new Array(WAYS).fill(0);
  for (const id of chosen) votes[memory.way[id]] += memory.success[id] ? 1 : -1;
  const most = Math.max(...votes), best = [0, 1, 2, 3].filter((way) => votes[way] === most);
  return best[Math.floor(draw(seed, step, DRAWS.model) * best.length)];
}

const stepSeedOf = (seed, step) => seed * 100000 + step;

// What the agent does with a task: the pool, the chosen in the order of the prompt, the way.
function decide(memory, task, settings, step, epsilon) {
  const { seed, k2 } = settings, stepSeed = stepSeedOf(seed, step);
  const pool = recall(memory, task, settings, stepSeed);
  const { order, score } = rank(memory, task, pool, settings, stepSeed);
  let chosen = order.slice(0, k2);
  const explored = draw(seed, step, DRAWS.explore) < epsilon;
  if (explored) {
    const places = pool.map((_, i) => i);
    for (let i = 0; i < chosen.length; i += 1) {
      const j = i + Math.floor(draw(seed, step, DRAWS.slate + i) * (places.length - i));
      [places[i], places[j]] = [places[j], places[i]];
    }
    chosen = places.slice(0, chosen.length);
  }
  chosen = chosen.map((i) => pool[i]);
  return { pool, score, chosen, explored, way: answer(memory, chosen, seed, step) };
}

function emptyMemory() {
  return { task: [], way: [], success: [], q: [], uses: [], first: 0, of: ALL.map(() => []) };
}

// Steps of an agent in the world, one at a time.
function* play(settings) {
  const { seed, alpha, keep } = settings;
  const memory = emptyMemory(), world = firstWorld(seed);
  const latest = new Array(TASKS).fill(false), ever = new Array(TASKS).fill(false);
  let order = [], epoch = 0;
  for (let step = 1; ; step += 1) {
    const changes = changesAt(settings, step);
    for (const [family, by] of changes) world[family] = turned(world[family], by);
    if (!order.length) order = epochOf(seed, epoch++, tasksAt(settings, step));
    const task = order.shift();
    const made = decide(memory, task, settings, step, settings.epsilon);
    const chance = CHANCES[world[familyOf(task)][made.way]];
    const success = draw(seed, step, DRAWS.luck) < chance;
    const reward = success ? 1 : -1, moved = [];
    for (const id of made.chosen) {
      memory.q[id] = memory.q[id] + alpha * (reward - memory.q[id]);
      memory.uses[id] += 1;
      moved.push(memory.q[id]);
    }
    memory.of[task].push(memory.task.length);
    memory.task.push(task);
    memory.way.push(made.way);
    memory.success.push(success);
    memory.q.push(0);
    memory.uses.push(0);
    memory.first = Math.max(0, memory.task.length - keep);
    latest[task] = success;
    ever[task] ||= success;
    const share = (flags) => flags.filter(Boolean).length / TASKS;
    yield { step, task, ...made, chance, success, moved, changes, now: share(latest), ever: share(ever), memory, world };
  }
}

// --- a model that is trained on ---------------------------------------------------------------------------------------

// Linear in the embedding, a row of weights for each way. It takes the way it rates highest; every reward is one step of
// stochastic gradient descent: on the squared error ("value"), or, as a softmax classifier, on −reward × log p ("policy").
// With `replay` it learns again, after each step, from so many of the steps before it; with `anchor` each step from the first
// shift on pulls the weights by that part back to what they were there.
function* train(settings, loss, rate, { replay = 0, anchor = 0 } = {}) {
  const { seed } = settings, world = firstWorld(seed);
  const weights = Array.from({ length: WAYS }, () => new Array(DIMENSION).fill(0));
  const learn = ([task, way, reward]) => {
    const x = EMBEDDINGS[task], rated = ratedBy(weights, task);
    const e = rated.map(exponential), whole = e[0] + e[1] + e[2] + e[3];
    for (let w = 0; w < WAYS; w += 1) {
      const error = loss === "value" ? (w === way ? reward - rated[way] : 0) : reward * ((w === way ? 1 : 0) - e[w] / whole);
      for (let i = 0; i < DIMENSION; i += 1) weights[w][i] += rate * error * x[i];
    }
  };
  const done = [];
  let order = [], epoch = 0, kept = null;
  for (let step = 1; ; step += 1) {
    for (const [family, by] of changesAt(settings, step)) world[family] = turned(world[family], by);
    if (step === settings.shifts[0]) kept = weights.map((row) => [...row]);
    if (!order.length) order = epochOf(seed, epoch++, tasksAt(settings, step));
    const task = order.shift(), rated = ratedBy(weights, task), most = Math.max(...rated);
    const best = [0, 1, 2, 3].filter((way) => rated[way] === most);
    const way = best[Math.floor(draw(seed, step, DRAWS.sample) * best.length)];
    const success = draw(seed, step, DRAWS.luck) < CHANCES[world[familyOf(task)][way]];
    done.push([task, way, success ? 1 : -1]);
    learn(done.at(-1));
    for (let i = 0; i < replay; i += 1) learn(done[Math.floor(draw(seed, step, DRAWS.replay + i) * done.length)]);
    if (kept) {
      for (let w = 0; w < WAYS; w += 1) for (let i = 0; i < DIMENSION; i += 1) weights[w][i] += anchor * (kept[w][i] - weights[w][i]);
    }
    yield { task, way, success, weights, world };
  }
}

function ratedBy(weights, task) {
  return weights.map((row) => {
    let total = 0;
    for (let i = 0; i < DIMENSION; i += 1) total += row[i] * EMBEDDINGS[task][i];
    return total;
  });
}

// --- the plane --------------------------------------------------------------------------------------------------------

// An exam without learning: the mean true chance of the way taken, over the tasks [that stayed, that changed].
function exam(world, wayOf) {
  const sums = [0, 0];
  for (const task of ALL) sums[isShifted(familyOf(task), 0) ? 1 : 0] += CHANCES[world[familyOf(task)][wayOf(task)]];
  return [sums[0] / (TASKS - CHANGED.length), sums[1] / CHANGED.length];
}

const LEARNING = 144;
const RESTING = 96;
const onThePlane = (settings, seed) => ({ ...settings, seed, change: 0, shifts: [LEARNING + 1], rest: true });

// One seed of a memory on the plane: [the old before the shift, the old at the end, the new at the end].
function keptAndGained(given, seed) {
  const settings = onThePlane(given, seed), run = play(settings);
  const after = (last) => exam(last.world, (task) => decide(last.memory, task, settings, 1000 + task, 0).way);
  let last;
  for (let step = 0; step < LEARNING; step += 1) last = run.next().value;
  const [before] = after(last);
  for (let step = 0; step < RESTING; step += 1) last = run.next().value;
  return [before, ...after(last)];
}

// The same of a model that is trained on.
function trainedKeptAndGained(loss, rate, seed, remedy = {}) {
  const run = train(onThePlane({}, seed), loss, rate, remedy);
  const after = (last) => exam(last.world, (task) => {
    const rated = ratedBy(last.weights, task);
    return rated.indexOf(Math.max(...rated));
  });
  let last;
  for (let step = 0; step < LEARNING; step += 1) last = run.next().value;
  const [before] = after(last);
  for (let step = 0; step < RESTING; step += 1) last = run.next().value;
  return [before, ...after(last)];
}

// --- what is measured of a run ----------------------------------------------------------------------------------------

const LENGTH = 288;
const BEFORE = [0, 144], AFTER = [144, LENGTH], LAST_BEFORE = [96, 144], FIRST_AFTER = [144, 192], LAST = [240, LENGTH];
// What guessing gets, and the best that there is.
const FLOOR = 0.4, CEILING = 0.9;
const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
const chanceOf = (run, [from, to], wanted = () => true) => mean(run.steps.slice(from, to).filter((one) => wanted(one.task)).map((one) => one.chance));

// A whole run of one seed.
function runOf(settings) {
  const steps = [], changed = Array.from({ length: FAMILIES }, () => []), made = play(settings);
  let memory;
  for (let i = 0; i < LENGTH; i += 1) {
    const { memory: known, world, ...step } = made.next().value;
    memory = known;
    for (const [family] of step.changes) changed[family].push(step.step);
    steps.push(step);
  }
  return { settings, steps, changed, memory };
}

// q of each memory after `t` steps of a run.
function qAfter(run, t) {
  const q = new Array(LENGTH).fill(0);
  for (let i = 0; i < t; i += 1) run.steps[i].chosen.forEach((id, at) => (q[id] = run.steps[i].moved[at]));
  return q;
}

// Of the memories with the same task, way and outcome that were used, the two whose q lie farthest apart at the end.
function farthestPair({ memory }) {
  let found = [0, 0, 0];
  for (let i = 0; i < LENGTH; i += 1) {
    for (let j = i + 1; j < LENGTH; j += 1) {
      if (memory.task[i] !== memory.task[j] || memory.way[i] !== memory.way[j] || memory.success[i] !== memory.success[j]) continue;
      const apart = Math.abs(memory.q[i] - memory.q[j]);
      if (memory.uses[i] && memory.uses[j] && apart > found[2]) found = [i, j, apart];
    }
  }
  return found;
}

// The memories of what the shift changes that were trusted then (q of 0.5 and more), and how many of them ended below 0.
function trusted(run) {
  const q = qAfter(run, BEFORE[1]), those = [];
  for (let id = 0; id < BEFORE[1]; id += 1) if (q[id] >= 0.5 && isShifted(familyOf(run.steps[id].task), 0)) those.push(id);
  return those;
}

const REPLAYED = { replay: 1 }, ANCHORED = { anchor: 0.02 };
// After `LEARNING` steps of a world that stays and in which one task of each family never comes, an exam without learning:
// the mean true chance of the tasks that came, and of those that did not.
function transferred(given) {
  const settings = { ...given, change: 0, shifts: [], held: true }, run = play(settings), chances = [[], []];
  let last;
  for (let step = 0; step < LEARNING; step += 1) last = run.next().value;
  for (const task of ALL) {
    const { way } = decide(last.memory, task, settings, 1000 + task, 0);
    chances[Number(isHeld(task))].push(CHANCES[last.world[familyOf(task)][way]]);
  }
  return chances.map(mean);
}

// What the model would have done without each of the memories that it was given in a step, by the same draw.
function waysWithout(run, step) {
  return step.chosen.map((id) => answer(run.memory, step.chosen.filter((other) => other !== id), run.settings.seed, step.step));
}

// As in memrl_core/lessons/measures.py.
const ON_THE_PLANE = {
  seen: (settings) => transferred(settings)[0],
  held_out: (settings) => transferred(settings)[1],
  kept: (settings) => keptAndGained(settings, settings.seed)[1],
  gained: (settings) => keptAndGained(settings, settings.seed)[2],
  trained_before: ({ seed }) => trainedKeptAndGained("value", 0.3, seed)[0],
  trained_kept: ({ seed }) => trainedKeptAndGained("value", 0.3, seed)[1],
  trained_gained: ({ seed }) => trainedKeptAndGained("value", 0.3, seed)[2],
  replayed_kept: ({ seed }) => trainedKeptAndGained("value", 0.3, seed, REPLAYED)[1],
  replayed_gained: ({ seed }) => trainedKeptAndGained("value", 0.3, seed, REPLAYED)[2],
  anchored_kept: ({ seed }) => trainedKeptAndGained("value", 0.3, seed, ANCHORED)[1],
  anchored_gained: ({ seed }) => trainedKeptAndGained("value", 0.3, seed, ANCHORED)[2],
};
const ofChanged = (task) => isShifted(familyOf(task), 0), ofStayed = (task) => !ofChanged(task);
// Of each step the pool, how many of it are of the task's family, and how many of those there are.
const recalledOf = ({ steps, memory, settings }) => steps.map(({ task, pool }, at) => {
  const own = (id) => familyOf(memory.task[id]) === familyOf(task);
  let relevant = 0;
  for (let id = Math.max(0, at - settings.keep); id < at; id += 1) relevant += own(id);
  return { pool, own: pool.filter(own).length, relevant };
});
const OF_RUN = {
  before: (run) => chanceOf(run, BEFORE),
  level: (run) => chanceOf(run, LAST_BEFORE),
  changed: (run) => chanceOf(run, AFTER, ofChanged),
  stayed: (run) => chanceOf(run, AFTER, ofStayed),
  drop: (run) => chanceOf(run, LAST_BEFORE, ofChanged) - chanceOf(run, FIRST_AFTER, ofChanged),
  recovery: (run) => chanceOf(run, LAST, ofChanged) - chanceOf(run, FIRST_AFTER, ofChanged),
  gap: (run) => run.steps.at(-1).ever - run.steps.at(-1).now,
  never: (run) => run.memory.uses.filter((uses) => uses === 0).length / LENGTH,
  pair: (run) => farthestPair(run)[2],
  fallen: (run) => {
    const those = trusted(run);
    return those.length ? those.filter((id) => run.memory.q[id] < 0).length / those.length : 0;
  },
  precision: (run) => mean(recalledOf(run).filter((one) => one.pool.length).map((one) => one.own / one.pool.length)),
  recall: (run) => mean(recalledOf(run).filter((one) => one.relevant).map((one) => one.own / one.relevant)),
  false_recall: (run) => mean(recalledOf(run).filter((one) => !one.relevant).map((one) => Number(one.pool.length > 0))),
  company: (run) => mean(run.steps.flatMap((step) => waysWithout(run, step).map((way) => Number(way === step.way)))),
};
const measure = (name, settings) => (OF_RUN[name] ? OF_RUN[name](runOf(settings)) : ON_THE_PLANE[name](settings));
