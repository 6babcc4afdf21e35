// Phase B of MemRL (arXiv 2601.03192, eq. 7) as the core computes it (memrl_core/retrieval/phases.py), for sliders.

const FLAT_SD = 1e-9;
const DIGITS = 1e9;

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
