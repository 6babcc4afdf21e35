// Settings as a person moves them, and averages over seeds that are worked out between frames.

const SEEDS = 50;
const PLANE_SEEDS = 40;
// The settings, by name: the least, the most, the step of the slider, the default.
const RANGES = {
  alpha: [0, 1, 0.01, 0.3],
  lambda: [0, 1, 0.01, 0.5],
  epsilon: [0, 1, 0.01, 0],
  change: [0, 0.2, 0.005, 0],
  k1: [1, 48, 1, 24],
  k2: [1, 8, 1, 3],
  delta: [-0.1, 0.95, 0.01, -0.1],
  keep: [8, LENGTH, 4, LENGTH],
  seed: [1, 9999, 1, 1],
  speed: [1, 60, 1, 3],
};
const SLIDERS = [
  ["alpha", "α", "alpha", "step size: how far a reward moves q", "step size"],
  ["lambda", "λ", "lambda", "weight of q against similarity", "weight of q"],
  ["epsilon", "ε", "epsilon", "chance that memories are drawn blindly", "blind choices"],
  ["change", "world", "change rate", "chance per step that a family changes", "changes"],
  ["k1", "k1", "k1", "recalled", "recalled"],
  ["k2", "k2", "k2", "given to the model", "given"],
  ["delta", "δ", "delta", "least similarity", "least similarity"],
  ["keep", "kept", "memories kept", "the latest only", "the latest"],
];
const shown = (name, value) => (Number.isInteger(RANGES[name][2]) ? String(value) : Number(value).toFixed(RANGES[name][2] < 0.01 ? 3 : 2).replace("-", "−"));
const defaults = () => ({ ...Object.fromEntries(Object.entries(RANGES).map(([name, range]) => [name, range[3]])), shifts: [145] });
const coreOf = (state) => ({
  seed: state.seed, alpha: state.alpha, weight: state.lambda, epsilon: state.epsilon, change: state.change, delta: state.delta,
  k1: state.k1, k2: state.k2, keep: state.keep, shifts: state.shifts, rest: false,
});

// Work in slices between frames: the newest of each name; an older one is dropped.
function slices() {
  const jobs = new Map();
  let asked = false;
  const work = () => {
    asked = false;
    const until = performance.now() + 9;
    while (jobs.size && performance.now() < until) {
      const [name, job] = jobs.entries().next().value;
      if (job.next().done) jobs.delete(name);
    }
    more();
  };
  const more = () => {
    if (!jobs.size || asked) return;
    asked = true;
    setTimeout(work, 2);
  };
  return (name, job) => {
    jobs.delete(name);
    jobs.set(name, job);
    more();
  };
}

// Mean, and the tenth and ninetieth of a hundred, over seeds, with the task and the true chance of each step of each seed;
// reported whenever something is new.
function* bandOf(settings, seeds, tell) {
  const all = [], at = (sorted, part) => sorted[Math.round(part * (sorted.length - 1))];
  for (let seed = 1; seed <= seeds; seed += 1) {
    const chances = [], now = new Float64Array(LENGTH), ever = new Float64Array(LENGTH), made = play({ ...settings, seed });
    for (let i = 0; i < LENGTH; i += 1) {
      const step = made.next().value;
      [now[i], ever[i]] = [step.now, step.ever];
      chances.push([step.chance, step.task]);
      if (i % 48 === 47) yield;
    }
    all.push({ now, ever, chances });
    if (seed % 10 && seed < seeds) continue;
    const band = { now: [], ever: [], low: [], high: [], seeds: seed, chances: all.map((one) => one.chances) };
    for (let i = 0; i < LENGTH; i += 1) {
      const sorted = all.map((one) => one.now[i]).sort((a, b) => a - b);
      band.now.push(sorted.reduce((sum, one) => sum + one, 0) / seed);
      band.ever.push(all.reduce((sum, one) => sum + one.ever[i], 0) / seed);
      band.low.push(at(sorted, 0.1));
      band.high.push(at(sorted, 0.9));
    }
    tell(band);
    yield;
  }
}

// The mean true chance of success of some tasks, epoch for epoch, and half the width of its 95 % interval over seeds.
function* chanceOverTime(settings, seeds, wanted, tell) {
  const rows = [];
  for (let seed = 1; seed <= seeds; seed += 1) {
    const { steps } = runOf({ ...settings, seed });
    rows.push(Array.from({ length: LENGTH / TASKS }, (_, epoch) => mean(steps.slice(epoch * TASKS, (epoch + 1) * TASKS).filter((one) => wanted(one.task)).map((one) => one.chance))));
    if (seed % 10 === 0) tell(rows[0].map((_, epoch) => meanAndHalf(rows.map((row) => row[epoch]))));
    yield;
  }
}

// A mean, and half the width of its 95 % interval.
function meanAndHalf(values) {
  const middle = mean(values), square = values.reduce((sum, one) => sum + (one - middle) ** 2, 0) / Math.max(values.length - 1, 1);
  return [middle, 1.96 * Math.sqrt(square / values.length)];
}

// What many seeds did up to step `t`, in words: before the first shift, and from there to the next of what it changed and of
// what stayed. Where families change by chance as well, nothing stays: then it is said of all tasks.
function inOneSentence(rows, { shifts, change }, t) {
  const [first = LENGTH + 1, next = LENGTH + 1] = shifts, of = (from, to, wanted) => {
    const means = rows.map((row) => row.slice(from, to).filter(([, task]) => wanted(task)).map(([chance]) => chance)).filter((one) => one.length).map(mean);
    if (!means.length) return "";
    const [middle, half] = meanAndHalf(means);
    return `${Math.round(100 * middle)} ± ${Math.round(100 * half)} %`;
  };
  if (!t) return "";
  const all = () => true, seen = Math.min(t, first - 1), parts = [];
  const steps = (from, to) => (from === to ? `of step ${from}` : `of steps ${from} to ${to}`);
  if (seen > 0) parts.push(`${of(0, seen, all)} of the tasks ${steps(1, seen)} succeed`);
  if (t >= first) {
    const to = Math.min(t, next - 1), when = steps(first, to), those = seen ? "those" : "the tasks";
    const changed = of(first - 1, to, ofChanged), stayed = of(first - 1, to, ofStayed);
    const said = change ? `${of(first - 1, to, all)} of the tasks ${when}`
      : `${when}, ${[changed && `${changed} of ${those} that changed`, stayed && `${stayed} of those that stayed`].filter(Boolean).join(" and ")}`;
    parts.push(seen ? `after the shift, ${said}` : `After the shift, ${said} succeed`);
  }
  return `${parts.join("; ")}. Mean chance of ${rows.length} seeds, ± 95 %.`;
}

// The own dot of the plane: means over seeds, each with its standard error.
function* ownDot(settings, tell) {
  const rows = [];
  for (let seed = 1; seed <= PLANE_SEEDS; seed += 1) {
    rows.push(keptAndGained(settings, seed));
    if (seed % 8 === 0) {
      const [before, kept, gained] = [0, 1, 2].map((i) => {
        const mean = rows.reduce((sum, row) => sum + row[i], 0) / seed;
        const square = rows.reduce((sum, row) => sum + (row[i] - mean) ** 2, 0) / (seed - 1);
        return [mean, Math.sqrt(square / seed)];
      });
      tell({ before, kept, gained, seeds: seed });
    }
    yield;
  }
}
