// The screen of the playground: one state, which is also the address; everything on it follows from the state.

const MOST_SHIFTS = 6;
// The state that an address names, and a sentence for each part of it that could not be taken as it is.
function stateOf(search) {
  const asked = new URLSearchParams(search), state = defaults(), notes = [];
  let step = 0;
  for (const [name, [least, most]] of Object.entries(RANGES)) {
    if (!asked.has(name)) continue;
    const given = Number(asked.get(name));
    if (asked.get(name).trim() === "" || Number.isNaN(given)) {
      notes.push(`${name} is a number`);
      continue;
    }
    const whole = Number.isInteger(RANGES[name][2]) ? Math.round(given) : given;
    state[name] = Math.min(Math.max(whole, least), most);
    if (state[name] !== given) notes.push(`${name} is ${state[name]} (from ${least} to ${most}; the link asks for ${asked.get(name).slice(0, 12)})`);
  }
  if (asked.has("shift")) {
    const given = asked.get("shift").split(",").filter(Boolean), steps = given.map(Number);
    state.shifts = [...new Set(steps.filter((one) => Number.isInteger(one) && one >= 1 && one <= LENGTH))].sort((a, b) => a - b).slice(0, MOST_SHIFTS);
    if (state.shifts.length !== given.length && asked.get("shift") !== "none") {
      notes.push(`shift is at most ${MOST_SHIFTS} steps from 1 to ${LENGTH}; here: ${state.shifts.join(", ") || "none"}`);
    }
  }
  if (asked.has("step")) {
    const given = Number(asked.get("step"));
    step = Number.isFinite(given) ? Math.min(Math.max(Math.round(given), 0), LENGTH) : 0;
    if (step !== given) notes.push(`step is ${step} (from 0 to ${LENGTH})`);
  }
  return { state, step, paused: asked.has("step"), notes };
}

function addressOf(state, step, presenting = false, packed = "") {
  const parts = Object.keys(RANGES).filter((name) => state[name] !== RANGES[name][3]).map((name) => `${name}=${state[name]}`);
  if (state.shifts.join() !== "145") parts.push(`shift=${state.shifts.join(",") || "none"}`);
  if (step !== null) parts.push(`step=${step}`);
  if (presenting) parts.push("presenter=1");
  if (packed) parts.push(`own=${packed}`);
  return parts.length ? `?${parts.join("&")}` : "";
}

// A person's own tasks in an address: deflated, in base64 without the signs that an address gives a meaning to.
const LONGEST_IN_ADDRESS = 2000, LONGEST_PASTED = 20000;
async function packed(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const signs = btoa(Array.from(bytes, (one) => String.fromCharCode(one)).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return signs.length <= LONGEST_IN_ADDRESS ? signs : "";
}
// Read part by part: what unpacks to more than can be pasted is not read to its end. Throws where it cannot be read.
async function unpacked(signs) {
  if (signs.length > LONGEST_IN_ADDRESS) throw new RangeError("longer than a link of this page");
  const bytes = Uint8Array.from(atob(signs.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).pipeThrough(new TextDecoderStream("utf-8", { fatal: true })).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value;
    if (text.length > LONGEST_PASTED) throw new RangeError("longer than what can be pasted");
  }
  return text;
}

const LOCK = `<svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true"><path fill="currentColor" d="M17 9V7A5 5 0 0 0 7 7v2H5v13h14V9Zm-8-2a3 3 0 0 1 6 0v2H9Zm3 10.7a1.7 1.7 0 1 1 0-3.4 1.7 1.7 0 0 1 0 3.4Z"/></svg>`;

const OWN_TASKS = `<label>Eight to forty short texts, one a line, in two to eight groups with a blank line between them. A line with # names its group.
  <textarea rows="12" maxlength="20000" spellcheck="false" aria-label="Tasks"></textarea></label><p role="alert"></p>
  <button type="button" class="pg-own-use">Use them</button> <button type="button" class="pg-own-save">Save as a file</button> <label class="pg-own-file">Open a file <input type="file" accept=".txt,text/plain" aria-label="Open a file of tasks"></label>
  <button type="button" class="pg-own-back">Back to the shipped tasks</button> <button type="button" class="pg-own-close">Close</button>`;

// What stands on the screen; texts are this program's own, what comes from an address are numbers.
function markup(presets) {
  const slider = ([name, sign, label, what, short]) => `<label class="pg-slider" title="${what}"><span><b>${sign}</b> <small class="pg-long">${what}</small><small class="pg-short">${short}</small></span>
    <span class="pg-value" data-of="${name}"></span><input type="range" aria-label="${label}" data-name="${name}" min="${RANGES[name][0]}" max="${RANGES[name][1]}" step="${RANGES[name][2]}"></label>`;
  return `<header class="pg-head"><h1>Playground</h1>
    <p class="pg-idea">The model is frozen. <b>Stable</b> is what its memory keeps, <b>plastic</b> what it can still learn.</p>
    <div class="pg-presets" role="group" aria-label="Presets">${presets.map((one, i) => `<button type="button" data-preset="${i}" title="${one.sentence}" aria-pressed="false">${one.name}</button>`).join("")}</div>
    <button type="button" class="pg-own-open" aria-expanded="false">Your own tasks</button><button type="button" class="pg-present" aria-pressed="false">Present</button><button type="button" class="pg-link">Copy link</button></header>
  <div class="pg-line"><p class="pg-status" role="status"></p><p class="pg-sentence"></p><div class="pg-shifts" role="group" aria-label="Shifts"></div>
    <button type="button" class="pg-future" aria-pressed="false">Show what ${SEEDS} seeds do</button></div>
  <section class="pg-model" aria-label="The model and its task">
    <div class="pg-box">${LOCK}<div><b>Frozen model</b><small>0 weights change</small></div></div>
    <h2>The task</h2><p class="pg-task">–</p>
    <h2>It is given</h2><ul class="pg-given"></ul>
    <h2>It answers</h2><p class="pg-answer">–</p>
    <h2>Reward</h2><p class="pg-reward">–</p>
    <p class="pg-formula">q ← q + α (R − q)</p></section>
  <div class="pg-map"><canvas role="img"></canvas><div class="pg-hint" hidden></div>
    <div class="pg-legend" aria-hidden="true"><span>q −1<i></i>+1</span><span>● worked</span><span>■ failed</span><span>thin: recalled</span><span class="pg-thick">thick: chosen</span></div></div>
  <section class="pg-controls" aria-label="Settings">
    <div class="pg-buttons"><button type="button" class="pg-play"></button><button type="button" class="pg-back">Back</button><button type="button" class="pg-step">Step</button><button type="button" class="pg-seed">New seed</button></div>
    <button type="button" class="pg-shift">Shift the world</button>
    <label class="pg-slider"><span><b>speed</b> <small>a second</small></span><span class="pg-value" data-of="speed"></span><input type="range" aria-label="speed" data-name="speed" min="1" max="60" step="1"></label>
    ${SLIDERS.map(slider).join("")}</section>
  <div class="pg-strip" data-testid="strip"><canvas role="img"></canvas><input type="range" class="pg-at" aria-label="step" min="0" max="${LENGTH}" step="1"></div>
  <div class="pg-plane" data-testid="plane"><canvas role="img"></canvas><button type="button" class="pg-dot" data-testid="plane-dot" aria-label="Your settings: drag along the frontier, or press the arrow keys"></button><div class="pg-hint" hidden></div></div>
  <p class="pg-note">Solved now: at the latest attempt of each task; the band holds 8 of 10 seeds. Plane: 144 steps of all tasks, then
    every second family changes and for 96 steps only its tasks come; an exam without learning asks each task once. Kept: mean chance of success
    in the families that stayed; gained: in those that changed. Large dot: large α; dark: large λ; ± standard error, 40 seeds. Drag the yellow dot: α and λ follow. Orange: a linear
    model trained by gradient descent on the same stream, from where it was before.</p>`;
}

export default function ({ parentElement, data, setTriggerValue }) {
  const root = parentElement.querySelector(".pg");
  if (root.dataset.steps !== undefined) return void root.take?.(data.own);
  const { presets } = data;
  let plane = data.plane, taken = data.own?.number;
  root.innerHTML = markup(presets);
  const $ = (selector) => root.querySelector(selector);
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const opened = stateOf(window.location.search);
  let { state } = opened, t = opened.step, playing = !opened.paused && t < LENGTH;
  let family = -1, future = false, geometry = null, held = null;
  // The own tasks of this page, packed for its address; what was sent to be embedded; what a link asks for.
  let ownPacked = new URLSearchParams(window.location.search).get("own") ?? "", sent = "", linked = null;
  let run, q, band, baseline, own, phase = 0, hovered = -1, places = [], marks = [], dirty = true, last = 0;
  const submit = slices();
  root.dataset.steps = String(t);

  function settle() {
    run = runOf(coreOf(state));
    q = qAfter(run, t);
    dirty = true;
  }

  function averages() {
    const settings = coreOf(state), plain = { ...coreOf(defaults()), shifts: state.shifts, change: state.change };
    const same = JSON.stringify({ ...settings, seed: 0 }) === JSON.stringify({ ...plain, seed: 0 });
    submit("band", bandOf(settings, SEEDS, (made) => ((band = made), (root.dataset.seeds = String(made.seeds)), (dirty = true))));
    // Of the settings before: nothing of theirs stands on the screen any more.
    band = null;
    submit("plane", ownDot(settings, (made) => ((own = made), (dirty = true))));
    if (same) baseline = null;
    else submit("baseline", bandOf(plain, SEEDS, (made) => ((baseline = made), (dirty = true))));
  }

  let asked = 0;
  function address() {
    clearTimeout(asked);
    asked = setTimeout(() => {
      if (root.isConnected) history.replaceState(history.state, "", window.location.pathname + addressOf(state, playing ? null : t, root.classList.contains("pg-presenting"), ownPacked));
    }, 150);
  }

  function changed(tell = "") {
    delete root.dataset.seeds;
    controls();
    settle();
    averages();
    address();
    $(".pg-status").textContent = tell;
  }

  function controls() {
    for (const input of root.querySelectorAll("input[data-name]")) {
      const name = input.dataset.name;
      input.value = state[name];
      $(`[data-of=${name}]`).textContent = name === "keep" && state.keep === LENGTH ? "all" : shown(name, state[name]);
    }
    $(".pg-play").textContent = playing ? "Pause" : t >= LENGTH ? "Again" : "Play";
    $(".pg-step").disabled = t >= LENGTH;
    $(".pg-back").disabled = t <= 0;
    marked();
    $(".pg-shift").disabled = t >= LENGTH || state.shifts.length >= MOST_SHIFTS || state.shifts.includes(t + 1);
    for (const button of root.querySelectorAll("[data-preset]")) {
      const preset = { ...defaults(), ...presets[button.dataset.preset].settings };
      const same = Object.keys(RANGES).every((name) => ["seed", "speed"].includes(name) || preset[name] === state[name]);
      button.setAttribute("aria-pressed", String(same));
    }
  }

  // A number for each shift, to move it, and a cross to take it away.
  function marked() {
    const place = $(".pg-shifts"), said = state.shifts.join();
    if (place.dataset.shifts === said) return;
    place.dataset.shifts = said;
    place.replaceChildren(...state.shifts.map((at, i) => {
      const mark = document.createElement("span");
      mark.innerHTML = `<label>Shift before step <input type="number" min="1" max="${LENGTH}" value="${at}" aria-label="shift ${i + 1}"></label><button type="button" aria-label="Remove the shift before step ${at}">×</button>`;
      mark.querySelector("input").addEventListener("change", ({ target }) => shift(at, Math.min(Math.max(Math.round(Number(target.value) || at), 1), LENGTH)));
      mark.querySelector("button").addEventListener("click", () => shift(at, null));
      return mark;
    }));
  }

  // Move the shift before a step to another step, or take it away.
  function shift(from, to) {
    state.shifts = [...new Set([...state.shifts.filter((one) => one !== from), ...(to === null ? [] : [to])])].sort((a, b) => a - b);
    changed(to === null ? "The shift is taken away." : `The world shifts before step ${to}.`);
  }

  // Be at a step of the run, as it was when it was played.
  function go(to) {
    playing = false;
    phase = 0;
    t = Math.min(Math.max(to, 0), LENGTH);
    q = qAfter(run, t);
    root.dataset.steps = String(t);
    dirty = true;
    controls();
    address();
  }

  function advance() {
    run.steps[t].chosen.forEach((id, at) => (q[id] = run.steps[t].moved[at]));
    t += 1;
    root.dataset.steps = String(t);
    if (t >= LENGTH) {
      playing = false;
      controls();
      address();
    }
  }

  function model() {
    // What is gone before it is read is shown when it is over.
    const under = phase > 0 && (state.speed <= 12 || !t), step = under ? run.steps[t] : run.steps[t - 1], at = under ? phase : 1;
    const put = (selector, text) => {
      const place = $(selector);
      if (place.textContent !== text) place.textContent = text;
    };
    put(".pg-task", step ? taskName(step.task) : "–");
    const given = step && at > 0.28 ? step.chosen : [];
    const lines = given.map((id) => `${run.steps[id].success ? "✓" : "✗"} ${WAY_NAMES[run.steps[id].way]}, ${taskName(run.steps[id].task)}, q ${signed(q[id])}`);
    if (step && at > 0.28 && !lines.length) lines.push("no memory");
    const list = $(".pg-given");
    if (list.dataset.lines !== lines.join("|")) {
      list.dataset.lines = lines.join("|");
      list.replaceChildren(...lines.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
    }
    put(".pg-answer", step && at > 0.42 ? `Try ${WAY_NAMES[step.way]}` : "–");
    put(".pg-reward", step && at > 0.55 ? (step.success ? "+1: it worked" : "−1: it failed") : "–");
  }

  function paint() {
    const map = $(".pg-map canvas"), strip = $(".pg-strip canvas"), field = $(".pg-plane canvas");
    map.dim = state.speed <= 6 && playing;
    places = paintMap(map, run, t, q, phase, hovered);
    const until = future ? LENGTH : t;
    geometry = paintStrip(strip, run, t, band, baseline, { until, movable: true });
    marks = paintPlane(field, plane, own);
    dot();
    familyOpened();
    model();
    $(".pg-at").value = t;
    if (playing && t % 12) return;
    $(".pg-sentence").textContent = band ? inOneSentence(band.chances, state, until) : "";
    const end = band && until && [band.now[until - 1], band.ever[until - 1]].map(percent);
    map.setAttribute("aria-label", `The memory after ${t} steps: ${t} memories in 8 families.`);
    strip.setAttribute("aria-label", end ? `Mean of ${band.seeds} seeds after ${until} steps: solved now ${end[0]}, ever solved ${end[1]}.` : "Accuracy over the steps.");
    field.setAttribute("aria-label", own ? `With these settings ${percent(own.kept[0])} of the old is kept and ${percent(own.gained[0])} of the new gained.` : "Kept against gained.");
  }

  function frame(time) {
    if (!root.isConnected) return;
    const passed = Math.min(time - last, 1000);
    last = time;
    if (playing) {
      // Without motion a step is there at once, its lines with it.
      phase += (passed / 1000) * state.speed;
      while (phase >= 1 && playing) {
        phase -= 1;
        advance();
      }
      if (!playing) phase = 0;
      dirty = true;
    }
    if (dirty) {
      dirty = false;
      const real = phase;
      if (still.matches && phase > 0) phase = 0.96;
      paint();
      phase = real;
    }
    requestAnimationFrame(frame);
  }

  function pause() {
    playing = false;
    phase = 0;
    dirty = true;
    controls();
    address();
  }

  root.addEventListener("input", ({ target }) => {
    const name = target.dataset.name;
    if (!name) return;
    state[name] = Number(target.value);
    if (name === "speed") {
      controls();
      address();
    } else changed();
  });
  $(".pg-play").addEventListener("click", () => {
    if (playing) return pause();
    if (t >= LENGTH) restart();
    playing = true;
    controls();
    address();
  });
  function restart() {
    t = 0;
    phase = 0;
    root.dataset.steps = "0";
    settle();
  }
  $(".pg-step").addEventListener("click", () => {
    if (playing) pause();
    advance();
    controls();
    address();
    dirty = true;
  });
  $(".pg-back").addEventListener("click", () => go(t - 1));
  $(".pg-at").addEventListener("input", ({ target }) => go(Number(target.value)));
  $(".pg-future").addEventListener("click", () => {
    future = !future;
    $(".pg-future").setAttribute("aria-pressed", String(future));
    dirty = true;
  });
  const present = (is) => {
    root.classList.toggle("pg-presenting", is);
    $(".pg-present").setAttribute("aria-pressed", String(is));
    address();
    dirty = true;
  };
  $(".pg-present").addEventListener("click", () => present(!root.classList.contains("pg-presenting")));
  const pressed = (event) => {
    if (!root.isConnected) return window.removeEventListener("keydown", pressed);
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, button, [role=slider]")) return;
    if (event.key === " ") $(".pg-play").click();
    else if (event.key === "ArrowRight") go(t + 1);
    else if (event.key === "ArrowLeft") go(t - 1);
    else if (event.key === "Escape") present(false);
    else return;
    event.preventDefault();
  };
  window.addEventListener("keydown", pressed);

  // The strip is the axis of time: drag on it to be at a step, drag a shift's handle to move it.
  // A click on a family opens its tasks, its memories and their q over time.
  $(".pg-map canvas").addEventListener("click", (event) => {
    const bounds = event.currentTarget.getBoundingClientRect(), { middle, small } = mapPlaces(bounds.width, bounds.height);
    const clicked = FAMILY_NAMES.findIndex((_, one) => Math.hypot(event.clientX - bounds.left - middle(one)[0], event.clientY - bounds.top - middle(one)[1]) < 76 * small);
    $(".pg-family")?.remove();
    family = clicked;
    dirty = true;
    if (family < 0) return;
    const panel = Object.assign(document.createElement("section"), { className: "pg-family" });
    panel.setAttribute("aria-label", FAMILY_NAMES[family]);
    panel.innerHTML = `<h2></h2><button type="button" aria-label="Close">×</button><p></p><div><canvas role="img"></canvas></div>`;
    panel.querySelector("h2").textContent = FAMILY_NAMES[family];
    panel.querySelector("button").addEventListener("click", () => {
      panel.remove();
      family = -1;
    });
    $(".pg-map").append(panel);
  });
  function familyOpened() {
    const canvas = $(".pg-family canvas");
    if (!canvas) return;
    const of = tasksOf(family).map((task, i) => {
      const [colour] = FAMILY_COLOURS[i % FAMILY_COLOURS.length], mine = run.steps.slice(0, t).filter((step) => step.task === task);
      return `${taskName(task)} (${colour}): ${mine.length} memories, ${mine.filter((step) => step.success).length} worked`;
    });
    $(".pg-family p").textContent = of.join("; ");
    canvas.setAttribute("aria-label", `q of the memories of ${FAMILY_NAMES[family]} up to step ${t}.`);
    paintFamily(canvas, run, family, t);
  }

  const strip = $(".pg-strip canvas"), across = (event) => event.clientX - strip.getBoundingClientRect().left;
  const markAt = (event) => state.shifts.find((at) => Math.abs(geometry.x(at) - across(event)) < 8 && event.clientY - strip.getBoundingClientRect().top < 30);
  strip.addEventListener("pointerdown", (event) => {
    if (!geometry) return;
    strip.setPointerCapture(event.pointerId);
    held = { shift: markAt(event) };
    if (held.shift === undefined) go(geometry.stepAt(across(event)));
  });
  strip.addEventListener("pointermove", (event) => {
    if (!geometry) return;
    strip.style.cursor = held || markAt(event) !== undefined ? "ew-resize" : "pointer";
    if (!held) return;
    const to = geometry.stepAt(across(event));
    if (held.shift === undefined) return void (to !== t && go(to));
    const at = Math.max(to, 1);
    if (at === held.shift || state.shifts.includes(at)) return;
    shift(held.shift, at);
    held.shift = at;
  });
  for (const end of ["pointerup", "pointercancel"]) strip.addEventListener(end, () => (held = null));

  // The dot is a control: the nearest setting that was computed, at once; then its own numbers, live.
  const handle = $(".pg-dot");
  function dot() {
    const mark = marks.find((one) => one[2] === own);
    handle.style.visibility = mark ? "" : "hidden";
    if (mark) Object.assign(handle.style, { left: `${mark[0]}px`, top: `${mark[1]}px` });
  }
  function take(chosen) {
    if (chosen.alpha === state.alpha && chosen.lambda === state.lambda) return;
    Object.assign(state, { alpha: chosen.alpha, lambda: chosen.lambda });
    own = { ...chosen, alpha: undefined, lambda: undefined };
    changed(`α ${chosen.alpha}, λ ${chosen.lambda}`);
  }
  handle.addEventListener("pointerdown", (event) => {
    handle.setPointerCapture(event.pointerId);
    held = { dot: true };
  });
  handle.addEventListener("pointermove", (event) => {
    if (!held?.dot) return;
    const bounds = $(".pg-plane canvas").getBoundingClientRect(), [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
    const computed = marks.filter(([, , one]) => one.alpha !== undefined && one.lambda !== undefined);
    const far = ([a, b]) => Math.hypot(a - x, b - y);
    if (computed.length) take(computed.reduce((best, one) => (far(one) < far(best) ? one : best))[2]);
  });
  for (const end of ["pointerup", "pointercancel"]) handle.addEventListener(end, () => (held = null));
  handle.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const frontier = frontierOf(plane);
    if (!by || !own || !frontier.length) return;
    event.preventDefault();
    const here = frontier.findIndex((one) => one.alpha === state.alpha && one.lambda === state.lambda);
    const nearest = frontier.reduce((best, one, i) => (Math.abs(one.kept[0] - own.kept[0]) < Math.abs(frontier[best].kept[0] - own.kept[0]) ? i : best), 0);
    take(frontier[Math.min(Math.max(here < 0 ? nearest : here + by, 0), frontier.length - 1)]);
  });
  $(".pg-seed").addEventListener("click", () => {
    state.seed = state.seed >= RANGES.seed[1] ? 1 : state.seed + 1;
    restart();
    playing = true;
    controls();
    address();
  });
  $(".pg-shift").addEventListener("click", () => {
    state.shifts = [...state.shifts, t + 1].sort((a, b) => a - b);
    changed(`The world shifts before step ${t + 1}: every second family has other reliable ways.`);
  });
  $(".pg-presets").addEventListener("click", ({ target }) => {
    const preset = presets[target.dataset.preset];
    if (!preset) return;
    state = { ...defaults(), ...preset.settings, seed: state.seed, speed: state.speed, shifts: state.shifts };
    changed(preset.sentence);
  });
  $(".pg-link").addEventListener("click", async () => {
    const link = window.location.origin + window.location.pathname + addressOf(state, t, false, ownPacked);
    try {
      await navigator.clipboard.writeText(link);
      $(".pg-status").textContent = TEXTS && !ownPacked ? "The link is copied: it opens these settings with the shipped tasks. Yours are too long for an address: under Your own tasks they can be saved as a file." : "The link is copied: it opens this very state.";
    } catch {
      $(".pg-status").textContent = link;
    }
  });
  // A person's own tasks: the program embeds them, and what it says of them comes back with the page's data.
  const shipped = FAMILY_NAMES, panel = Object.assign(document.createElement("section"), { className: "pg-own", innerHTML: OWN_TASKS });
  panel.setAttribute("aria-label", "Your own tasks");
  const openOwn = (is) => {
    $(".pg-own-open").setAttribute("aria-expanded", String(is));
    if (!is) return panel.remove();
    root.append(panel);
    panel.querySelector("textarea").focus();
  };
  const beginWith = (tasks, names, texts, sentence) => {
    const { step, paused } = linked ?? { step: 0, paused: false };
    linked = null;
    setTasks(tasks);
    [FAMILY_NAMES, TEXTS, family, own, plane] = [names, texts, -1, null, texts ? { dots: [], ghosts: [] } : data.plane];
    $(".pg-family")?.remove();
    root.dataset.own = texts ? String(texts.length) : "";
    openOwn(false);
    restart();
    playing = !paused;
    changed(sentence);
    if (paused) go(step);
  };
  root.take = (given) => {
    if (!given || given.number === taken) return;
    taken = given.number;
    panel.querySelector("p").textContent = given.trouble ?? "";
    if (given.trouble) return linked && refused(given.trouble);
    const used = sent;
    packed(used).then((signs) => {
      if (used !== sent) return;
      ownPacked = signs;
      address();
    });
    const { groups, embeddings } = given, texts = groups.flatMap(([, some]) => some);
    beginWith({ sizes: groups.map(([, some]) => some.length), embeddings }, groups.map(([name]) => name), texts, `${texts.length} tasks of yours in ${groups.length} families, embedded by WordLlama. The plane shows your settings alone.`);
  };
  // What a link asks for and cannot have: the shipped tasks stay.
  function refused(why) {
    [linked, ownPacked] = [null, ""];
    changed(`The tasks of this link cannot be used. ${why}`);
  }
  const use = (text) => {
    sent = text;
    setTriggerValue("own", text);
  };
  if (ownPacked) {
    linked = opened;
    playing = false;
    unpacked(ownPacked).then((text) => {
      panel.querySelector("textarea").value = text;
      use(text);
    }).catch(() => refused("It was cut off or changed: ask for it again. The tasks are the shipped ones."));
  }
  $(".pg-own-open").addEventListener("click", () => openOwn(!panel.isConnected));
  panel.querySelector(".pg-own-close").addEventListener("click", () => openOwn(false));
  panel.querySelector(".pg-own-use").addEventListener("click", () => {
    panel.querySelector("p").textContent = "Embedding …";
    use(panel.querySelector("textarea").value);
  });
  panel.querySelector(".pg-own-save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([panel.querySelector("textarea").value], { type: "text/plain" }));
    link.download = "tasks.txt";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  panel.querySelector(".pg-own-file input").addEventListener("change", async ({ target }) => {
    const [file] = target.files;
    if (!file) return;
    // A little more than can be pasted, so that what is too long is refused and not cut.
    panel.querySelector("textarea").value = await file.slice(0, LONGEST_PASTED).text();
    target.value = "";
  });
  panel.querySelector(".pg-own-back").addEventListener("click", () => {
    [sent, ownPacked, linked] = ["", "", null];
    beginWith(SHIPPED, shipped, null, "The shipped tasks are back.");
  });
  const hint = (canvas, box, text, event) => {
    box.hidden = !text;
    if (!text) return;
    box.textContent = text;
    const bounds = canvas.getBoundingClientRect(), x = event.clientX - bounds.left, y = event.clientY - bounds.top;
    box.style.left = `${Math.max(0, Math.min(x + 12, bounds.width - box.offsetWidth))}px`;
    box.style.top = `${Math.max(0, y - box.offsetHeight - 10)}px`;
  };
  const near = (points, event) => {
    const bounds = event.currentTarget.getBoundingClientRect();
    let [found, least] = [-1, 12];
    points.forEach(([x, y], i) => {
      const distance = Math.hypot(event.clientX - bounds.left - x, event.clientY - bounds.top - y);
      if (distance < least) [found, least] = [i, distance];
    });
    return found;
  };
  $(".pg-map canvas").addEventListener("mousemove", (event) => {
    const id = near(places.slice(0, t), event);
    if (id !== hovered) dirty = true;
    hovered = id;
    const step = run.steps[id], used = id < 0 ? 0 : run.steps.slice(0, t).filter((one) => one.chosen.includes(id)).length;
    hint(event.currentTarget, $(".pg-map .pg-hint"), id < 0 ? "" : `Memory of step ${id + 1}: ${taskName(step.task)}, ${WAY_NAMES[step.way]} ${step.success ? "worked" : "failed"}; q ${signed(q[id])}, used ${used} times`, event);
  });
  $(".pg-plane canvas").addEventListener("mousemove", (event) => {
    const mark = marks[near(marks, event)]?.[2];
    const name = !mark ? "" : mark.loss ? `trained on the same stream, ${mark.loss === "value" ? "squared error" : "softmax, policy gradient"}, rate ${mark.rate}: before ${percent(mark.before[0])}`
      : mark === own ? "your settings" : `α ${mark.alpha}, λ ${mark.lambda}`;
    hint(event.currentTarget, $(".pg-plane .pg-hint"), mark ? `${name}, kept ${percent(mark.kept[0])}, gained ${percent(mark.gained[0])}` : "", event);
  });
  for (const canvas of root.querySelectorAll("canvas")) {
    canvas.addEventListener("mouseleave", () => {
      hovered = -1;
      canvas.parentElement.querySelector(".pg-hint")?.setAttribute("hidden", "");
      dirty = true;
    });
  }
  const sized = new ResizeObserver(() => (dirty = true));
  sized.observe(root);
  // The theme can change under the page.
  const themed = setInterval(() => (dirty = true), 1000);
  controls();
  changed(opened.notes.length ? `Of this link: ${opened.notes.join("; ")}.` : "");
  if (new URLSearchParams(window.location.search).get("presenter") === "1") present(true);
  requestAnimationFrame((time) => {
    last = time;
    frame(time);
  });
  return () => {
    window.removeEventListener("keydown", pressed);
    sized.disconnect();
    clearInterval(themed);
  };
}
