// A student's page: join, predict, see the answer, play one's own seed. Texts become text nodes only.

const main = document.querySelector("main");
let drawn = "", playing = 0;

function element(tag, text, more = {}) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  Object.assign(made, more);
  return made;
}

async function asked(path, body) {
  const answer = await fetch(path, body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  if (answer.status === 404) throw new Error("closed");
  return answer.json();
}

function show(state) {
  if (state.out) return out();
  if (!state.joined) return join();
  const same = JSON.stringify(state);
  if (same === drawn) return undefined;
  drawn = same;
  const parts = [element("h1", state.text)];
  state.choices.forEach((choice, i) => {
    const button = element("button", choice, { disabled: state.stage !== "predict" || state.mine !== null });
    button.setAttribute("aria-pressed", String(state.mine === i));
    if (state.answer === i) button.className = "right";
    button.onclick = () => act("predict", { choice: i });
    parts.push(button);
  });
  parts.push(element("p", said(state), { className: "quiet" }));
  if (state.stage !== "predict" && state.because) parts.push(element("p", state.because));
  if (state.away) parts.push(element("p", "The teacher's screen does not answer. The room waits; nothing is lost.", { className: "quiet" }));
  main.replaceChildren(...parts);
  if (state.stage === "play") main.append(...played(state));
  return undefined;
}

function said(state) {
  const name = `${state.name}: `;
  if (state.stage === "predict") return name + (state.mine === null ? "what do you think happens?" : "your prediction is locked. Look up.");
  if (state.mine === null) return `${name}you made no prediction.`;
  if (state.answer === null) return `${name}predictions are closed.`;
  return name + (state.mine === state.answer ? "that is right." : "that is not what happens. Why?");
}

function out() {
  drawn = "out";
  main.replaceChildren(element("h1", "The teacher has put you out of this room."));
}

function join() {
  if (drawn === "join") return;
  drawn = "join";
  const form = element("form");
  const name = element("input", "", { placeholder: "Your name, or any word", maxLength: 40, autocomplete: "off" });
  name.setAttribute("aria-label", "Your name");
  form.append(element("h1", "Join the room"), name, element("button", "Join", { className: "send" }),
    element("p", "Only the teacher's machine hears of it, and it forgets when the room is closed.", { className: "quiet" }));
  form.onsubmit = (event) => { event.preventDefault(); act("join", { name: name.value }); };
  main.replaceChildren(form);
}

// --- one's own seed ---------------------------------------------------------------------------------------------------

const BEGUN = { alpha: 0.3, weight: 0.5, epsilon: 0, change: 0, delta: -1, k1: 24, k2: 3, keep: 1e6, shifts: [], rest: false };

const SIGNS = { alpha: "α", weight: "λ", epsilon: "ε", change: "change rate", delta: "δ", k1: "k1", k2: "k2", keep: "memories kept" };

// In what one agent differs from the other, in words.
function inWords(settings, other) {
  const [one, two] = [{ ...BEGUN, ...settings }, { ...BEGUN, ...other }];
  const said = (name) => (name === "keep" && one.keep >= LENGTH ? "all memories kept" : name === "delta" && one.delta < 0 ? "no gate" : `${SIGNS[name]} = ${one[name]}`);
  const words = Object.keys(SIGNS).filter((name) => one[name] !== two[name]).map(said);
  if (String(one.shifts) !== String(two.shifts)) words.push(one.shifts.length ? "a shift" : "no shift");
  return words.join(", ");
}

// Share of tasks solved so far, after each step.
function shares(settings, seed, steps) {
  const found = [];
  let solved = 0;
  for (const one of play({ ...BEGUN, ...settings, seed })) {
    solved += one.success ? 1 : 0;
    found.push(solved / one.step);
    if (one.step === steps) return found;
  }
  return found;
}

// Of the tasks that count, the share that is solved in the end.
function since(solved, { steps, since: first }) {
  const before = first > 1 ? solved[first - 2] * (first - 1) : 0;
  return (solved[steps - 1] * steps - before) / (steps - first + 1);
}

function played(state) {
  const left = shares(state.left, state.seed, state.steps), right = shares(state.right, state.seed, state.steps);
  const difference = since(right, state) - since(left, state);
  if (state.result === null && playing !== state.number) {
    playing = state.number;
    setTimeout(() => act("report", { number: state.number, result: difference }), 0);
  }
  const points = 100 * difference;
  return [
    element("p", state.effect),
    lines(left, right, [inWords(state.left, state.right), inWords(state.right, state.left)], state.since),
    element("p", `${points >= 0 ? "+" : "−"}${Math.abs(points).toFixed(1)} points`, { className: "result" }),
    element("p", `This is seed ${state.seed}, yours alone. Look up: what is it for the others?`, { className: "quiet" }),
  ];
}

function lines(left, right, names, since) {
  const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 320 182");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Share of tasks solved so far: dashed ${names[0]}, solid ${names[1]}`);
  const x = (i) => 30 + (280 * i) / (left.length - 1), y = (share) => 130 - 120 * share;
  const add = (tag, attributes, text) => {
    const made = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    svg.append(made);
  };
  for (const share of [0, 0.5, 1]) {
    add("line", { x1: 30, x2: 310, y1: y(share), y2: y(share), stroke: "var(--line)" });
    add("text", { x: 0, y: y(share) + 4 }, `${100 * share} %`);
  }
  if (since > 1) {
    add("line", { x1: x(since - 1), x2: x(since - 1), y1: 10, y2: 130, stroke: "currentColor", "stroke-dasharray": "2 3" });
    add("text", { x: x(since - 1) + 3, y: 20 }, "shift");
  }
  add("text", { x: 30, y: 145 }, "solved so far, after each task");
  add("text", { x: 310, y: 145, "text-anchor": "end" }, `${left.length}`);
  [[left, "var(--left)", "5 4"], [right, "var(--right)", ""]].forEach(([line, stroke, dash], i) => {
    add("line", { x1: 30 + 150 * i, x2: 56 + 150 * i, y1: 166, y2: 166, stroke, "stroke-width": 2.5, "stroke-dasharray": dash });
    add("text", { x: 61 + 150 * i, y: 170 }, names[i]);
    add("polyline", { points: line.map((share, i) => `${x(i)},${y(share)}`).join(" "), fill: "none", stroke, "stroke-width": 2.5, "stroke-dasharray": dash });
  });
  return svg;
}

// --- the room ---------------------------------------------------------------------------------------------------------

async function act(path, body) {
  try {
    const state = await asked(path, body);
    if (state.error) main.append(element("p", state.error));
    else show(state);
  } catch (error) {
    closed(error);
  }
}

function closed(error) {
  drawn = "";
  const gone = error.message === "closed";
  main.replaceChildren(element("h1", gone ? "This room is closed." : "The room does not answer."),
    element("p", gone ? "Ask your teacher for a new link." : "Trying again. It may have been closed, or your phone is in another network than the teacher.", { className: "quiet" }));
  return gone;
}

async function watch() {
  let wait = 1000;
  try {
    show(await asked("state"));
  } catch (error) {
    if (closed(error)) return;
    wait = 3000;
  }
  setTimeout(watch, wait);
}

watch();
