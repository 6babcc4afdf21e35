// The lessons: a list, and one screen each. The lesson and presenting stand in the address; what a person predicted and
// the seed of their own run stay in this browser.

const LESSON_SEEDS = 40;
const CHECK_EVERY = 12;
// What can be looked at before the prediction: the shift is yet to come.
const UNSEEN = LEARNING;
const STORED = "memrl-lessons";
const NAMES = {
  kept: "can do of the old tasks, with a memory", gained: "can do of the changed tasks, with a memory",
  trained_before: "of the old tasks before, trained", trained_kept: "of the old tasks at the end, trained", trained_gained: "of the changed tasks, trained",
  replayed_kept: "of the old tasks at the end, with replay", replayed_gained: "of the changed tasks, with replay",
  anchored_kept: "of the old tasks at the end, regularised", anchored_gained: "of the changed tasks, regularised",
  before: "success before the shift", level: "success in the last 48 steps before the shift",
  changed: "success after the shift, of what changed", stayed: "success after the shift, of what stayed",
  drop: "what the shift takes from what changed", recovery: "what comes back of it",
  gap: "solved once, now failing", never: "memories never used", pair: "largest difference of q", fallen: "trusted memories that fell below 0",
  precision: "of what is recalled, of the task's family", recall: "of the family's memories, recalled", false_recall: "false recall: something came where nothing fits",
  company: "credited memories that decided nothing", seen: "exam on the tasks that came", held_out: "exam on the tasks that never came",
};
const SIGNS = { alpha: "α", lambda: "λ", epsilon: "ε", change: "change rate", k1: "k1", k2: "k2", delta: "δ", keep: "kept", shifted: "shift" };
const HANDS = {
  ...Object.fromEntries(SLIDERS.map(([name, sign, label, what]) => [name, { sign, label, what, range: RANGES[name], show: (value) => shown(name, value) }])),
  step: { sign: "step", label: "step", what: "of 288", range: [0, LENGTH, 1], show: String },
  rest: { sign: "steps", label: "steps in the new world", what: "in the new world", range: [0, RESTING, CHECK_EVERY], show: String },
  shifted: { sign: "shift", label: "the world shifts", what: "the world shifts at step 145", range: [0, 1, 1], show: (value) => (Number(value) ? "yes" : "no") },
};
// What of a run is drawn over time where a lesson asks for it, and its words.
const OVER_TIME = {
  before: [() => true, "all tasks"], level: [() => true, "all tasks"], changed: [ofChanged, "tasks that the shift changes"],
  held_out: [() => true, "the tasks that come"], drop: [ofChanged, "tasks that the shift changes"], recovery: [ofChanged, "tasks that the shift changes"], stayed: [ofStayed, "tasks that stay"],
};
// A picture of trails, and what of it is compared over seeds.
const TRAILS = { trails: ["trained_kept", "kept", "Can do of the old tasks at the end", ["trained on", "memory"]],
  remedies: ["trained_gained", "replayed_gained", "Can do of the changed tasks at the end", ["trained on", "with replay"]] };
const inUnit = (name) => (name === "pair" ? (value) => value.toFixed(2) : (value) => `${(100 * value).toFixed(0)} %`);
// The three digits in which a file states a mean.
const exactly = (name, value) => (name === "pair" ? value.toFixed(3) : `${(100 * value).toFixed(1)} %`);
const MATH = {
  update: `<math display="block"><mi>q</mi><mo>←</mo><mi>q</mi><mo>+</mo><mi>α</mi><mo>(</mo><mi>R</mi><mo>−</mo><mi>q</mi><mo>)</mo></math>`,
  score: `<math display="block"><mi>score</mi><mo>=</mo><mo>(</mo><mn>1</mn><mo>−</mo><mi>λ</mi><mo>)</mo><mo>·</mo><msub><mi>z</mi><mtext>similarity</mtext></msub><mo>+</mo><mi>λ</mi><mo>·</mo><msub><mi>z</mi><mi>q</mi></msub></math>`,
  none: "",
};
const asState = (given) => {
  const { shifted, ...rest } = given;
  return { ...defaults(), ...rest, shifts: shifted ? [145] : [] };
};
const settingsOf = (given, seed, held = false) => ({ ...coreOf(asState(given)), seed, held });
// What of some settings is not the default, in words.
const inWords = (given) => {
  const plain = { ...defaults(), shifted: true };
  const parts = Object.keys(SIGNS).filter((name) => given[name] !== plain[name]).map((name) => (name === "shifted" ? "no shift" : `${SIGNS[name]} = ${given[name]}`));
  return parts.join(", ") || "α = 0.3, λ = 0.5";
};

function stored() {
  try {
    const kept = JSON.parse(localStorage.getItem(STORED)) ?? {};
    const seed = Number.isInteger(kept.seed) && kept.seed > 40 && kept.seed < 10000 ? kept.seed : 41 + Math.floor(Math.random() * 9000);
    return { seed, lessons: kept.lessons && typeof kept.lessons === "object" ? kept.lessons : {} };
  } catch {
    return { seed: 41 + Math.floor(Math.random() * 9000), lessons: {} };
  }
}

function store(kept) {
  try {
    localStorage.setItem(STORED, JSON.stringify(kept));
  } catch {
    // A browser that keeps nothing: the lesson goes on, and is forgotten.
  }
}

// Text of a lesson's file: **bold** is its only mark.
function rich(place, text) {
  place.replaceChildren(...text.split("**").map((part, i) => Object.assign(document.createElement(i % 2 ? "b" : "span"), { textContent: part })));
}

// What both can do of the old and of the changed, at every twelfth step in the new world; means over seeds.
function* trailsOf(given, tell, remedies) {
  const sums = { memory: [], trained: [], ...(remedies ? { replayed: [], anchored: [] } : {}) };
  for (let seed = 1; seed <= LESSON_SEEDS; seed += 1) {
    const settings = onThePlane(coreOf(asState(given)), seed), memory = play(settings);
    const rates = (last, task) => {
      const rated = ratedBy(last.weights, task);
      return rated.indexOf(Math.max(...rated));
    };
    for (const [name, run, wayOf] of [
      ["memory", memory, (last, task) => decide(last.memory, task, settings, 1000 + task, 0).way],
      ["trained", train(settings, "value", 0.3), rates],
      ...(remedies ? [["replayed", train(settings, "value", 0.3, REPLAYED), rates], ["anchored", train(settings, "value", 0.3, ANCHORED), rates]] : []),
    ]) {
      let last;
      for (let step = 1; step <= LEARNING + RESTING; step += 1) {
        last = run.next().value;
        const at = (step - LEARNING) / CHECK_EVERY;
        if (!Number.isInteger(at) || at < 0) continue;
        const [kept, gained] = exam(last.world, (task) => wayOf(last, task));
        sums[name][at] ??= [0, 0];
        sums[name][at][0] += kept;
        sums[name][at][1] += gained;
      }
    }
    const means = (rows) => rows.map((row) => row.map((sum) => sum / seed));
    if (seed % 5 === 0) tell(Object.fromEntries(Object.entries(sums).map(([name, rows]) => [name, means(rows)])));
    yield;
  }
}

// One page to keep: every lesson, what was predicted and what forty seeds do; a document of texts alone.
function handout(lessons, kept, meanOf) {
  const page = document.implementation.createHTMLDocument("Lessons: a frozen model, a memory that learns");
  const add = (kind, text, place = page.body) => place.appendChild(Object.assign(page.createElement(kind), { textContent: text }));
  const plain = (text) => text.replaceAll("**", "");
  add("style", "body { max-width: 46rem; margin: 2rem auto; font: 15px/1.45 sans-serif } td { padding: 0 1rem 0 0 } h2 { margin: 1.6rem 0 0 }", page.head);
  page.head.prepend(Object.assign(page.createElement("meta"), { httpEquiv: "Content-Type", content: "text/html; charset=utf-8" }));
  add("h1", page.title);
  for (const [key, { title, sentence, predict, finding }] of Object.entries(lessons)) {
    const mine = kept.lessons[key]?.prediction;
    add("h2", title);
    add("p", plain(sentence));
    add("p", `${plain(predict.question)} ${mine ? `You predicted: ${predict.choices[mine - 1]}.` : "You have not predicted."}`);
    if (!mine) continue;
    add("p", `${mine === predict.answer ? "So it is." : `It is: ${predict.choices[predict.answer - 1]}.`} ${plain(predict.because)}`);
    const table = page.body.appendChild(page.createElement("table"));
    if (finding.length) table.createCaption().textContent = `Means of ${LESSON_SEEDS} seeds`;
    for (const one of finding) {
      const row = table.insertRow();
      for (const text of [inWords(one.settings), NAMES[one.measure], meanOf(one, key)]) row.insertCell().textContent = text;
    }
  }
  return `<!doctype html>${page.documentElement.outerHTML}`;
}

function* seedsOf(name, given, tell) {
  const values = [];
  for (let seed = 1; seed <= LESSON_SEEDS; seed += 1) {
    values.push(measure(name, settingsOf(given, seed)));
    if (seed % 10 === 0) tell([...values]);
    yield;
  }
}

const SHELL = `<div class="ls-list"><h1>Lessons</h1><p class="ls-intro"></p><div class="ls-troubles" role="alert"></div><div class="ls-cards"></div><button type="button" class="ls-handout">Save as a handout</button></div>
<article class="ls-one" hidden>
  <header class="ls-head"><button type="button" class="ls-all">All lessons</button><span class="ls-dots"></span>
    <button type="button" class="ls-back" aria-label="Back">←</button><button type="button" class="ls-next" aria-label="Next">→</button><button type="button" class="ls-present">Present</button></header>
  <section class="ls-text"><h1 class="ls-title"></h1><p class="ls-sentence"></p><div class="ls-math"></div>
    <h2>Predict first</h2><p class="ls-question"></p><div class="ls-choices" role="group" aria-label="Your prediction"></div>
    <h2 class="ls-try">Then try it</h2><div class="ls-hand"></div><div class="ls-verdict" role="status"></div></section>
  <div class="ls-picture"><canvas role="img"></canvas></div>
  <div class="ls-strip"><canvas role="img"></canvas><div class="ls-time"><button type="button" class="ls-play">Pause</button>
    <label>step <input type="range" aria-label="step of the run" class="ls-at" min="0" max="288" step="1"></label>
    <label>steps a second <input type="range" aria-label="speed" class="ls-speed" min="1" max="40" step="1" value="8"></label></div></div>
  <div class="ls-seeds"><p class="ls-seeds-title"></p><canvas role="img"></canvas></div>
</article>`;

export default function ({ parentElement, data }) {
  const root = parentElement.querySelector(".ls");
  if (root.dataset.ready) return;
  root.dataset.ready = "1";
  root.innerHTML = SHELL;
  const { lessons, troubles, own, own_keys: ownKeys, stated_at: statedAt, pictures } = data, computed = new Map(), keys = Object.keys(lessons), kept = stored(), submit = slices();
  const $ = (selector) => root.querySelector(selector);
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  let key = null, given = {}, run, t = 0, phase = 0, band = null, baseline = null, trails = { memory: [], trained: [] }, from = [], to = [], ids = [];
  let dirty = true, last = 0, playing = false, rest = 0, speed = 8;
  const lesson = () => lessons[key];
  const held = () => lesson().measure === "held_out";
  const mine = () => (kept.lessons[key] ??= {});
  const predicted = () => Number.isInteger(mine().prediction) && mine().prediction >= 1 && mine().prediction <= lesson().predict.choices.length;

  function address(replace = false) {
    const parts = new URLSearchParams(window.location.search);
    parts.delete("lesson");
    parts.delete("presenter");
    if (key) parts.set("lesson", key);
    if (key && root.classList.contains("ls-presenting")) parts.set("presenter", "1");
    const to = window.location.pathname + (parts.size ? `?${parts}` : "");
    history[replace ? "replaceState" : "pushState"](history.state, "", to);
  }

  // What could not be used, a file each.
  const say = (all) => $(".ls-troubles").replaceChildren(...all.map((text) => Object.assign(document.createElement("p"), { textContent: text })));

  function list() {
    key = null;
    root.classList.remove("ls-presenting");
    $(".ls-list").hidden = false;
    $(".ls-one").hidden = true;
    const done = keys.filter((one) => kept.lessons[one]?.tried), judged = keys.filter((one) => kept.lessons[one]?.prediction);
    const right = judged.filter((one) => kept.lessons[one].prediction === lessons[one].predict.answer);
    $(".ls-intro").textContent = `A sentence, a picture, a prediction, and your hand on it: two or three minutes each. ${done.length} of ${keys.length} finished${judged.length ? `, ${right.length} of ${judged.length} predictions right` : ""}; this browser alone knows. Your own lessons go into ${own}.`;
    say(troubles);
    $(".ls-cards").replaceChildren(...keys.map((one, i) => {
      const card = Object.assign(document.createElement("button"), { type: "button", className: "ls-card" });
      const title = Object.assign(document.createElement("b"), { textContent: `${i + 1} · ${lessons[one].title}${kept.lessons[one]?.tried ? " ✓" : ""}` });
      const text = document.createElement("span");
      rich(text, lessons[one].sentence);
      const picture = document.createElement("span");
      picture.className = "ls-card-picture";
      // Only shipped lessons have one: SVG of this program, never of a person's file.
      picture.innerHTML = pictures[one] ?? "";
      card.append(picture, title, text);
      card.addEventListener("click", () => open(one));
      return card;
    }));
  }

  function open(one, replace = false) {
    key = one;
    given = { ...lesson().start };
    [t, phase, rest, band, baseline, from, to, trails] = [0, 0, 0, null, null, [], [], { memory: [], trained: [] }];
    playing = ["map", "credit"].includes(lesson().picture) && !still.matches;
    $(".ls-speed").value = speed = lesson().picture === "credit" ? 1 : 8;
    if (predicted()) toItsEnd();
    $(".ls-list").hidden = true;
    $(".ls-one").hidden = false;
    root.dataset.lesson = key;
    root.dataset.picture = TRAILS[lesson().picture] ? "trails" : lesson().picture;
    $(".ls-title").textContent = lesson().title;
    rich($(".ls-sentence"), lesson().sentence);
    $(".ls-math").innerHTML = MATH[lesson().formula];
    rich($(".ls-question"), lesson().predict.question);
    $(".ls-dots").textContent = `Lesson ${keys.indexOf(key) + 1} of ${keys.length}`;
    $(".ls-choices").replaceChildren(...lesson().predict.choices.map((text, i) => {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: text });
      button.addEventListener("click", () => {
        if (predicted()) return;
        mine().prediction = i + 1;
        store(kept);
        toItsEnd();
        locked();
        averages();
      });
      return button;
    }));
    $(".ls-hand").replaceChildren(...lesson().hand.map((name) => {
      const { sign, label, what, range } = HANDS[name], slider = document.createElement("label");
      slider.className = "ls-slider";
      slider.innerHTML = `<span><b>${sign}</b> <small>${what}</small></span><span class="ls-value"></span><input type="range" aria-label="${label}" min="${range[0]}" max="${range[1]}" step="${range[2]}">`;
      slider.dataset.name = name;
      slider.querySelector("input").addEventListener("input", ({ target }) => moved(name, Number(target.value)));
      return slider;
    }));
    address(replace);
    settle();
    locked();
    averages();
  }

  // What is not played is shown whole, but no end of a run before the prediction.
  function toItsEnd() {
    if (lesson().picture === "pair" || still.matches) t = LENGTH;
    dirty = true;
  }

  function moved(name, value) {
    if (!predicted()) return;
    if (name === "step") [t, playing] = [value, false];
    else if (name === "rest") rest = value / CHECK_EVERY;
    else given[name] = name === "shifted" ? Boolean(value) : value;
    if (!mine().tried) {
      mine().tried = true;
      store(kept);
    }
    locked();
    if (name === "step" || name === "rest") dirty = true;
    else {
      settle();
      averages();
    }
  }

  // The prediction stands once it is made; only then may the hand move.
  function locked() {
    const is = predicted();
    root.dataset.predicted = is ? String(mine().prediction) : "";
    [...$(".ls-choices").children].forEach((button, i) => {
      button.disabled = is;
      button.setAttribute("aria-pressed", String(is && mine().prediction === i + 1));
      button.classList.toggle("ls-right", is && Boolean(mine().tried) && lesson().predict.answer === i + 1);
    });
    for (const slider of $(".ls-hand").children) {
      const { name } = slider.dataset, input = slider.querySelector("input");
      input.disabled = !is;
      input.value = name === "step" ? t : name === "rest" ? rest * CHECK_EVERY : Number(given[name]);
      slider.querySelector(".ls-value").textContent = HANDS[name].show(input.value);
    }
    $(".ls-try").textContent = is ? "Then try it" : "Then try it (predict first)";
    verdict(is && mine().tried);
  }

  function verdict(hasPredicted) {
    const place = $(".ls-verdict");
    place.replaceChildren();
    if (!hasPredicted) return;
    const { answer, because, choices } = lesson().predict, right = mine().prediction === answer;
    const head = Object.assign(document.createElement("b"), { textContent: right ? "As you predicted." : `The answer: ${choices[answer - 1]}.` });
    const text = document.createElement("p");
    rich(text, because);
    const table = document.createElement("table");
    lesson().finding.forEach((finding, i) => {
      const { measure: name, settings } = finding, row = table.insertRow(), trained = /^(trained|replayed|anchored)/.test(name);
      row.insertCell().textContent = trained || TRAILS[lesson().picture] ? "" : inWords(settings);
      row.insertCell().textContent = NAMES[name];
      row.insertCell().textContent = meanOf(finding, i);
    });
    if (lesson().finding.length) table.createCaption().textContent = `Means of ${LESSON_SEEDS} seeds, ± 95 %`;
    place.append(head, text, table);
  }

  const nameOf = ({ measure: name, settings }) => `${name} ${JSON.stringify(settings)}`;
  const inFull = (finding) => {
    const [middle, half] = computed.get(nameOf(finding)), unit = inUnit(finding.measure);
    return `${unit(middle).replace(" %", "")} ± ${unit(half)}`;
  };

  // Computed here and believed of no file: where one states another mean, that stands beside it.
  function meanOf(finding, place) {
    const { measure: name, settings, mean: stated } = finding, of = nameOf(finding);
    if (computed.has(of)) {
      const differs = stated !== null && Math.abs(stated - computed.get(of)[0]) > 0.0006;
      return `${inFull(finding)}${differs ? ` (${exactly(name, computed.get(of)[0])}; line ${statedAt[key]?.[place] ?? "?"} of its file says ${exactly(name, stated)})` : ""}`;
    }
    submit(of, seedsOf(name, settings, (made) => {
      if (made.length < LESSON_SEEDS) return;
      computed.set(of, meanAndHalf(made));
      locked();
    }));
    return ownKeys.includes(key) ? "being computed …" : `${inUnit(name)(stated)} ± …`;
  }

  function inTheHandout(finding, one) {
    if (computed.has(nameOf(finding))) return inFull(finding);
    return ownKeys.includes(one) ? "not computed yet: open the lesson" : inUnit(finding.measure)(finding.mean);
  }

  function settle() {
    run = runOf(settingsOf(given, kept.seed, held()));
    ids = [];
    if (lesson().picture === "pair") ids = farthestPair(run).slice(0, 2);
    if (lesson().picture === "life") {
      // One that worked, where there is one: its words are those of its marks.
      const those = trusted(run), worked = those.filter((id) => run.memory.success[id]);
      const known = worked.length ? worked : those.length ? those : run.memory.uses.map((_, id) => id);
      ids = [known.reduce((best, id) => (run.memory.uses[id] > run.memory.uses[best] ? id : best), known[0])];
    }
    if (ids.length && !predicted()) t = begun();
    dirty = true;
  }

  // How far the curves of the lesson's memories are drawn before the prediction: two of them until either is used twice
  // and both are written, one until its first failure; never past the steps that can be seen then, so that of a twin that
  // is written later the words alone stand there. Neither shows how far q can come.
  function begun() {
    const written = Math.max(...ids) + 1, usesOf = (id) => run.steps.flatMap((step, at) => (step.chosen.includes(id) ? [at] : []));
    const uses = ids.map(usesOf);
    const ends = ids.length === 2 ? uses.map((those) => those[1]) : uses.map((those) => those.find((at) => !run.steps[at].success));
    return Math.min(UNSEEN, Math.max(written, Math.min(...ends.map((at) => at ?? UNSEEN))));
  }

  function averages() {
    const name = lesson().measure, start = lesson().start, here = key;
    const tell = (what) => (value) => {
      if (here !== key) return;
      what(value);
      dirty = true;
    };
    const same = JSON.stringify(start) === JSON.stringify(given);
    const overTime = OVER_TIME[name];
    if (lesson().picture === "map" && predicted() && overTime) {
      submit("band", chanceOverTime(settingsOf(given, 1, held()), LESSON_SEEDS, overTime[0], tell((made) => (band = made))));
      if (!same) submit("baseline", chanceOverTime(settingsOf(start, 1, held()), LESSON_SEEDS, overTime[0], tell((made) => (baseline = made))));
      else baseline = null;
    } else if (lesson().picture === "map" && predicted()) {
      submit("band", bandOf({ ...settingsOf(given, 1) }, LESSON_SEEDS, tell((made) => (band = made))));
      if (!same) submit("baseline", bandOf({ ...settingsOf(start, 1) }, LESSON_SEEDS, tell((made) => (baseline = made))));
      else baseline = null;
    }
    const trail = TRAILS[lesson().picture];
    if (trail && !trails.memory.length) submit("trails", trailsOf(start, tell((made) => (trails = made)), lesson().picture === "remedies"));
    if (!predicted()) return;
    if (trail) {
      submit("from", seedsOf(trail[0], start, tell((made) => (from = made))));
      submit("to", seedsOf(trail[1], start, tell((made) => (to = made))));
      return;
    }
    if (!from.length) submit("from", seedsOf(name, start, tell((made) => (from = made))));
    to = [];
    if (same) return;
    submit("to", seedsOf(name, given, tell((made) => {
      to = made;
      root.dataset.seeds = String(made.length);
    })));
  }

  function paint() {
    const { picture, start, measure: name } = lesson(), field = $(".ls-picture canvas"), strip = $(".ls-strip canvas"), seeds = $(".ls-seeds canvas");
    const under = playing && t < LENGTH ? phase : 0, trail = TRAILS[picture];
    if (picture === "map") {
      field.dim = true;
      paintMap(field, run, t, qAfter(run, t), under);
      field.setAttribute("aria-label", `The memory after ${t} steps.`);
    } else if (picture === "credit") {
      paintCredit(field, run, t, predicted());
      field.setAttribute("aria-label", `Who earned the reward of step ${t}.`);
    } else if (trail) {
      paintTrails(field, trails, rest);
      field.setAttribute("aria-label", `The old and the changed tasks after ${rest * CHECK_EVERY} steps in the new world.`);
    } else {
      paintCurves(field, run, ids, t);
      field.setAttribute("aria-label", `q of ${ids.length === 2 ? "two memories" : "one memory"} up to step ${t}.`);
    }
    if (picture === "map" && predicted() && OVER_TIME[name]) {
      paintChance(strip, { made: band, other: baseline, names: [inWords(start), inWords(given)], of: OVER_TIME[name][1], shifts: run.settings.shifts, t });
    } else if (picture === "map") paintStrip(strip, run, t, band, baseline, { baseline: `dotted: ${inWords(start)}` });
    else if (!trail) paintMap(strip, run, t, qAfter(run, t), 0, ids[0]);
    strip.setAttribute("aria-label", "The run over its steps.");
    const hasPredicted = predicted();
    strip.hidden = !hasPredicted && name === "gap";
    $(".ls-seeds-title").textContent = !hasPredicted ? `What happens in ${LESSON_SEEDS} seeds shows after your prediction.`
      : trail ? trail[2] : `${NAMES[name][0].toUpperCase()}${NAMES[name].slice(1)} (pink: your seed)`;
    seeds.hidden = !hasPredicted;
    if (!hasPredicted) return;
    const same = JSON.stringify(start) === JSON.stringify(given);
    const mineAt = trail ? [] : [measureOnce(start), same ? undefined : measureOnce(given)];
    const summary = paintSeeds(seeds, {
      from, to: same && !trail ? [] : to, own: mineAt, unit: inUnit(name), top: name === "pair" ? 2 : 1,
      names: trail ? trail[3] : [inWords(start), inWords(given)],
    });
    seeds.setAttribute("aria-label", `${from.length} seeds: ${summary}`);
  }

  const known = new Map();
  function measureOnce(settings) {
    const name = `${key} ${JSON.stringify(settings)}`;
    if (!known.has(name)) known.set(name, measure(lesson().measure, settingsOf(settings, kept.seed)));
    return known.get(name);
  }

  const reach = () => (predicted() ? LENGTH : UNSEEN);

  function time() {
    $(".ls-play").textContent = playing && t < reach() ? "Pause" : "Play";
    Object.assign($(".ls-at"), { max: reach(), value: t });
  }

  function frame(now) {
    if (!root.isConnected) return;
    const passed = Math.min(now - last, 1000);
    last = now;
    if (key && playing && t < reach()) {
      phase += (passed / 1000) * speed;
      while (phase >= 1 && t < reach()) {
        phase -= 1;
        t += 1;
      }
      if (t >= reach()) phase = 0;
      root.dataset.steps = String(t);
      dirty = true;
    }
    if (key && dirty) {
      dirty = false;
      time();
      paint();
    }
    requestAnimationFrame(frame);
  }

  $(".ls-play").addEventListener("click", () => {
    playing = !(playing && t < reach());
    if (playing && t >= reach()) t = 0;
    phase = 0;
    dirty = true;
  });
  $(".ls-at").addEventListener("input", ({ target }) => {
    [t, playing, phase, dirty] = [Number(target.value), false, 0, true];
    root.dataset.steps = String(t);
  });
  $(".ls-speed").addEventListener("input", ({ target }) => (speed = Number(target.value)));

  const turn = (by) => {
    const next = keys[keys.indexOf(key) + by];
    if (next) open(next);
    else leave();
  };
  const leave = () => {
    list();
    address();
  };
  const present = () => {
    root.classList.toggle("ls-presenting");
    address(true);
    dirty = true;
  };
  $(".ls-handout").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([handout(lessons, kept, inTheHandout)], { type: "text/html" }));
    link.download = "lessons.html";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  $(".ls-all").addEventListener("click", leave);
  $(".ls-back").addEventListener("click", () => turn(-1));
  $(".ls-next").addEventListener("click", () => turn(1));
  $(".ls-present").addEventListener("click", present);
  const pressed = (event) => {
    if (!root.isConnected) return window.removeEventListener("keydown", pressed);
    if (!key || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, [role=slider]")) return;
    if (event.key === "ArrowRight") turn(1);
    else if (event.key === "ArrowLeft") turn(-1);
    else if (event.key === "Escape" && root.classList.contains("ls-presenting")) present();
  };
  window.addEventListener("keydown", pressed);
  const sized = new ResizeObserver(() => (dirty = true));
  sized.observe(root);
  const themed = setInterval(() => (dirty = true), 1000);
  const followed = () => {
    if (!root.isConnected) return window.removeEventListener("popstate", followed);
    enter();
  };
  function enter() {
    const asked = new URLSearchParams(window.location.search), one = asked.get("lesson");
    root.classList.toggle("ls-presenting", asked.get("presenter") === "1");
    if (one && keys.includes(one)) return open(one, true);
    list();
    if (one) say([`There is no lesson “${one.slice(0, 60)}”. Here are those that there are.`, ...troubles]);
  }
  window.addEventListener("popstate", followed);
  enter();
  requestAnimationFrame((time) => {
    last = time;
    frame(time);
  });
  return () => {
    window.removeEventListener("keydown", pressed);
    window.removeEventListener("popstate", followed);
    sized.disconnect();
    clearInterval(themed);
  };
}
