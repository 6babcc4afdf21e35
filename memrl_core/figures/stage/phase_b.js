// Both phases of MemRL (arXiv 2601.03192, eq. 6 and 7) as the core computes them (memrl_core/retrieval/phases.py), on what
// a step holds, for sliders.

const CLIP = 3;
const FLAT_SD = 1e-9;
const DIGITS = 1e9;
const PARALLEL = 1e-12;
const TIED = 1e-9;

// The even one of two integers equally near, as numpy rounds.
function rint(value) {
  const floor = Math.floor(value);
  const apart = value - floor;
  if (apart !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}

// Values standardised by their mean and population sd; all 0 where the sd is below 1e-9.
export function zscore(values) {
  const n = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / (n || 1);
  const sd = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n || 1));
  return sd < FLAT_SD ? values.map(() => 0) : values.map((value) => (value - mean) / sd);
}

// Positions from the best score to the worst: ties go to the more similar, then to the lower of `equals`, which is the
// order that the step's seed drew: equals keep it under every λ.
export function scoreOrder(scores, similarity, equals) {
  const decisive = scores.map((score) => rint(score * DIGITS));
  return scores
    .map((_, i) => i)
    .sort((i, j) => decisive[j] - decisive[i] || similarity[j] - similarity[i] || equals[i] - equals[j]);
}

// Phase B of a pool: both z, the scores and the order under a weight λ.
export function phaseB({ similarity, q, equals, weight, z = null, rest = null }) {
  const [bySimilarity, byQ] = z ?? [zscore(similarity), zscore(q)];
  const scores = similarity.map((_, i) => (1 - weight) * bySimilarity[i] + weight * byQ[i] + (rest ? rest(i, weight) : 0));
  return { bySimilarity, byQ, scores, order: scoreOrder(scores, similarity, equals) };
}

// How many of the nearest memories a step holds, without a gap.
export function held(step) {
  return Math.max(0, ...step.candidates.map((one) => one.rank_a));
}

// A step as it would be under another k1, k2 or δ (null: as recorded); the step itself where nothing is other. What is
// `decision.selected` then is the best k2 of the pool that this gives; `known` is false where memories that the step does
// not hold could be in it.
export function decidedAgain(step, { k1 = null, k2 = null, delta = null }) {
  const { recall, decision } = step;
  const opens = decision?.opens && recall;
  if (!decision?.slides && !opens) return step;
  const wanted = { k1: (opens && k1) ?? recall?.k1, delta: (opens && delta) ?? recall?.delta, k2: k2 ?? decision.k2 };
  const samePool = !opens || (wanted.k1 === recall.k1 && wanted.delta === recall.delta);
  if (samePool && wanted.k2 === decision.k2) return step;
  const candidates = samePool ? step.candidates : poolAgain(step, wanted);
  const pool = candidates.filter((one) => one.rank_b != null).sort((a, b) => a.rank_b - b.rank_b);
  const selected = pool.slice(0, wanted.k2).map((one) => one.memory);
  const again = { ...step, candidates: candidates.map((one) => ({ ...one, selected: selected.includes(one.memory) })) };
  again.recall = recall && { ...recall, k1: wanted.k1, delta: wanted.delta, pool: pool.length };
  again.decision = { ...decision, k2: wanted.k2, selected, slides: pool.length > 0 };
  again.known = samePool || isKnown(step, wanted);
  return again;
}

const passes = (one, delta, strict) => (strict ? one.similarity > delta : one.similarity >= delta);

// Whether no memory beyond those that the step holds can be in a pool: they are at most as similar as the last of these.
function isKnown(step, { k1, delta }) {
  const last = held(step);
  return k1 <= last || last >= step.recall.memories || !step.candidates.some((one) => one.rank_a === last && passes(one, delta, step.recall.strict));
}

function poolAgain(step, { k1, delta }) {
  const { normaliser, weight, opens } = step.decision;
  const { mean, sd, floor, least } = opens;
  const q = (one) => (floor === null ? one.q : Math.max(one.q, floor));
  const why = (one) => (!passes(one, delta, step.recall.strict) ? "below δ" : one.rank_a > k1 ? "beyond k1" : least !== null && q(one) < least ? "q too low" : "");
  const byRank = [...step.candidates].sort((a, b) => a.rank_a - b.rank_a);
  const pool = byRank.filter((one) => !why(one));
  const similarity = pool.map((one) => one.similarity);
  let z = null;
  if (normaliser === "raw") z = [similarity, pool.map(q)];
  else if (normaliser === "fixed") {
    // The official code takes mean and sd of q before it drops memories below the least q.
    const scaled = [...pool, ...byRank.filter((one) => why(one) === "q too low")];
    z = [similarity.map((value) => (value - mean) / sd), zscore(scaled.map(q)).map((value) => Math.min(CLIP, Math.max(-CLIP, value))).slice(0, pool.length)];
  }
  const found = phaseB({ similarity, q: pool.map(q), equals: pool.map((one) => one.tie), weight, z });
  const ranks = new Map(found.order.map((i, at) => [i, at + 1]));
  const inside = pool.map((one, i) => ({ ...one, missed: false, why: "", short: "", taken: null, rest: [], z: [found.bySimilarity[i], found.byQ[i]], score: found.scores[i], rank_b: ranks.get(i) }));
  const outside = byRank.filter(why).map((one) => ({ ...one, missed: true, why: "", short: why(one), taken: null, rest: [], z: null, score: null, rank_b: null }));
  return [...inside, ...outside];
}

// The recorded pool of a step under another λ: [{candidate, parts: [similarity, q, rest], score, rank}], best first.
// Without a λ, or where eq. 7 did not rank it, as it was recorded.
export function reranked(step, weight = null) {
  const pool = step.candidates.filter((one) => one.rank_b != null);
  const recorded = step.decision?.weight ?? 0;
  const w = weight ?? recorded;
  if (!step.decision?.slides || weight === null || weight === recorded) {
    return [...pool]
      .sort((a, b) => a.rank_b - b.rank_b)
      .map((candidate, at) => ({ candidate, parts: partsOf(candidate, w), score: candidate.score, rank: at + 1 }));
  }
  const { scores, order } = phaseB({
    similarity: pool.map((one) => one.similarity),
    q: pool.map((one) => one.q),
    equals: pool.map((one) => one.tie),
    z: [pool.map((one) => one.z[0]), pool.map((one) => one.z[1])],
    rest: (i, at) => restOf(pool[i], at),
    weight,
  });
  return order.map((i, at) => ({ candidate: pool[i], parts: partsOf(pool[i], weight), score: scores[i], rank: at + 1 }));
}

function restOf(candidate, weight) {
  return candidate.rest.reduce((sum, [, value, grows]) => sum + (grows ? weight * value : value), 0);
}

function partsOf(candidate, weight) {
  if (!candidate.z) return [0, 0, restOf(candidate, weight)];
  return [(1 - weight) * candidate.z[0], weight * candidate.z[1], restOf(candidate, weight)];
}

// The memories that go to the model: the recorded ones, or under another λ the best k2.
export function selectedAt(step, weight = null) {
  if (!step.decision) return [];
  if (!step.decision.slides || weight === null || weight === step.decision.weight) return step.decision.selected;
  return reranked(step, weight)
    .slice(0, step.decision.k2)
    .map((one) => one.candidate.memory);
}

// The exact λ at which the best k2 of a pool change, as the core finds them (memrl_core/analysis/decision/spectrum.py):
// scores are lines in λ, so it is where two of them cross at the cut. Of a step as it was decided the core has sent them.
export function flipsOf(step) {
  const { decision } = step;
  if (!decision?.slides) return [];
  if (step.known === undefined) return decision.flips;
  const pool = step.candidates.filter((one) => one.rank_b != null);
  const [first, last] = [0, 1].map((weight) => pool.map((one) => partsOf(one, weight).reduce((sum, part) => sum + part)));
  const atCut = (weight, i) => {
    const above = pool.map((_, j) => (1 - weight) * (first[j] - first[i]) + weight * (last[j] - last[i]));
    return above.filter((by) => by > TIED).length < decision.k2 && above.filter((by) => by > -TIED).length > decision.k2;
  };
  const crossings = new Set();
  for (let i = 1; i < pool.length; i++) {
    for (let j = 0; j < i; j++) {
      const apart = first[i] - first[j] - last[i] + last[j];
      const weight = (first[i] - first[j]) / apart;
      if (Math.abs(apart) > PARALLEL && weight > 0 && weight < 1 && atCut(weight, i)) crossings.add(weight);
    }
  }
  const edges = [0, ...[...crossings].sort((a, b) => a - b), 1];
  const chosen = edges.slice(1).map((edge, i) => [...selectedAt(step, (edges[i] + edge) / 2)].sort().join());
  return edges.slice(1, -1).filter((_, i) => chosen[i] !== chosen[i + 1]);
}
