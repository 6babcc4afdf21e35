import { boxOf, clamp, css, ease, el, fixed, mix, qColour, set, shortened, signed, svg, themeOf } from "./dom.js";
import { Film } from "./film.js";
import { Hand } from "./hand.js";
import { MAP_COLOURS, MemoryMap } from "./memory_map.js";
import { Model } from "./model.js";
import { decidedAgain, flipsOf, held, selectedAt } from "./phase_b.js";
import { QAxis } from "./q_axis.js";
import { Ranks } from "./ranks.js";

// The stage: the decision of one step as four linked parts, which plays. What is shown is a function of the step, of a
// time from 0 to 7 (the end of phase p is p), of the settings that are tried, and of the memories that are lit and pinned.

const USES = ["used", "ignored", "contradicted"];
const PHASES = ["Task", "Phase A · recall", "Phase B · rerank", "Prompt & answer", "Reward", "Q update", "New memory"];
const SHORT = ["Task", "A · recall", "B · rerank", "Answer", "Reward", "Q update", "New"];
const SECONDS = [0.8, 1.5, 1.3, 1.8, 0.8, 2.0, 0.9];
const LAST = PHASES.length;
const UNDER_WAY = 0.95;
// Seconds in which a reward that is given by hand moves what it moves.
const SWING = 0.9;
const HASTE = 2.4;
// Seconds of the first frame after a rest, and the most that one frame moves on: a window may have been out of sight.
const [FIRST_FRAME, MOST_PER_FRAME] = [0.016, 0.25];
const HEIGHT = 600;
const LOW = 540;
const WIDE = 1060;
const NARROW = 640;
const MOST_WORDS = 6;
// Settings that are tried on a step, by their sliders: in the address, symbol, name, places of their numbers.
const TRIED = {
  weight: { at: "lambda", symbol: "λ", name: "Weight λ of q in phase B", places: 3, step: 0.005, least: 0, most: 1 },
  k1: { at: "k1", symbol: "k1", name: "k1: memories that phase A recalls", places: 0, step: 1, least: 1, most: 1000 },
  k2: { at: "k2", symbol: "k2", name: "k2: memories in the prompt", places: 0, step: 1, least: 0, most: 100 },
  delta: { at: "delta", symbol: "δ", name: "δ: similarity above which phase A recalls", places: 3, step: 0.005, least: -1, most: 1 },
};
const NOTHING_TRIED = Object.fromEntries(Object.keys(TRIED).map((name) => [name, null]));
// Pixels that the number and the edges of a phase take beside its name.
const AROUND_NAME = 32;

export function mountStage(element, data, callbacks = {}) {
  return new Stage(element, data, callbacks);
}

// Why a reward is what it is: the world's verdict, and before it what a person says who gave another one.
const rewardSaid = ({ rater, reason, environment, verdict }) => {
  if (!rater) return verdict;
  const worlds = [environment == null ? "" : signed(environment), verdict].filter(Boolean).join(": ");
  return [`by ${rater}${reason ? `: ${reason}` : ""}`, worlds && `the environment ${worlds}`].filter(Boolean).join(" · ");
};

// What a turn adds to the answer, each text with its class.
const turnTexts = ({ recalled, text, notes, observation }) => [
  [recalled, "stage-recalled"], [text || "(nothing)", "stage-said"], [notes.join(" · "), "stage-caption"], [observation, "stage-observed"],
];

class Stage {
  constructor(element, data, callbacks) {
    this.element = element;
    this.callbacks = callbacks;
    this.index = Math.max(0, data.steps.length - 1);
    this.t = this.goal = LAST;
    this.tried = { ...NOTHING_TRIED };
    this.lightens = null;
    this.hovered = this.pinned = null;
    this.speed = 1;
    this.last = null;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.build();
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.root);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.recolour = () => this.relayout();
    this.scheme.addEventListener("change", this.recolour);
    this.update(data);
  }

  destroy() {
    this.watcher.disconnect();
    this.scheme.removeEventListener("change", this.recolour);
    cancelAnimationFrame(this.frame);
    this.film?.close();
    this.hand.destroy();
    this.root.remove();
  }

  // --- the elements -----------------------------------------------------------------------------------------------

  build() {
    const root = (this.root = el("section", "stage", this.element));
    set(root, { "aria-label": "Stage: one decision, played", tabindex: -1 });
    const top = el("div", "stage-top", root);
    this.playButton = el("button", "stage-play", top, "▶");
    set(this.playButton, { type: "button", "aria-label": "Play", title: "Play (space)" });
    this.playButton.addEventListener("click", () => this.toggle());
    const scrubber = (this.scrubber = el("div", "stage-scrubber", top));
    const phases = set(el("div", "stage-phases", scrubber), { role: "group", "aria-label": "Phases" });
    this.phaseButtons = PHASES.map((name, i) => {
      const button = set(el("button", "stage-phase", phases), { type: "button", "data-phase": i + 1, title: `${i + 1}: ${name}` });
      el("span", "stage-phase-number", button, String(i + 1));
      el("span", "stage-phase-name", button, name);
      el("span", "stage-phase-short", button, SHORT[i]);
      button.addEventListener("click", () => {
        // Of what lies ahead only the phase itself is played: who opens it has no time for those before it.
        this.halt().t = Math.max(this.t, Math.min(i, this.most()));
        this.goTo(i + 1);
        this.callbacks.onOpen?.(i + 1);
      });
      return button;
    });
    this.track = set(el("input", "stage-track", scrubber), { type: "range", min: 0, max: LAST, step: 0.01, "aria-label": "Moment of the step" });
    this.track.addEventListener("input", () => {
      this.halt().pause();
      this.t = this.goal = Math.min(Number(this.track.value), this.most());
      this.callbacks.onPhase?.(this.phase);
      this.redraw();
    });
    this.linkButton = set(el("button", "stage-quiet-button", top, "Copy link"), { type: "button", title: "Copy the address of this very view" });
    this.linkButton.addEventListener("click", () => this.copyLink());
    this.line = set(el("p", "stage-line", root), { "aria-live": "polite" });
    const body = el("div", "stage-body", root);
    this.buildTask(set(el("section", "stage-panel stage-task", body), { "aria-label": "Task and answer" }));
    const on = {
      hover: (n) => this.hover(n),
      pin: (n) => this.pin(n),
      select: (numbers) => this.selectedOnMap(numbers),
      redraw: () => this.redraw(),
    };
    this.ranksBox = set(el("section", "stage-panel stage-ranks", body), { "aria-label": "Pool and rerank" });
    this.ranks = new Ranks(this.ranksBox, on);
    // Over the second half of the pool: the answer, the hand, the map and the axis stay in sight.
    this.ranksBox.append(this.card);
    const mapPanel = set(el("section", "stage-panel stage-map", body), { "aria-label": "Map" });
    this.buildTools(el("div", "stage-tools", mapPanel));
    const plot = el("div", "stage-map-row", mapPanel);
    this.mapBox = el("div", "stage-map-box", plot);
    this.map = new MemoryMap(this.mapBox, on);
    this.mapBox.addEventListener("pointerenter", () => (this.overMap = true));
    this.mapBox.addEventListener("pointerleave", () => (this.overMap = false));
    this.axisBox = el("div", "stage-q-box", plot);
    this.axis = new QAxis(this.axisBox, on);
    this.legend = el("div", "stage-legend", mapPanel);
    this.buildTries(set(el("div", "stage-tries", root), { role: "group", "aria-label": "Other settings for this step" }));
    this.flights = svg("svg", { class: "stage-flights", "aria-hidden": "true" }, root);
    this.lines = svg("svg", { class: "stage-flights stage-followed-lines", "aria-hidden": "true" }, root);
    root.addEventListener("keydown", (event) => this.key(event));
  }

  buildTask(panel) {
    const head = el("div", "stage-asked", panel);
    this.taskHead = el("h2", "", head);
    this.taskText = set(el("div", "stage-text stage-intent", head), { tabindex: 0, role: "group", "aria-label": "The task" });
    const rest = el("div", "stage-rest", panel);
    const part = (title, name) => {
      const box = el("div", `stage-part ${name}`, rest);
      const heading = el("h2", "", box, title);
      return [box, heading];
    };
    const [prompt, promptHead] = part("To the prompt", "stage-prompt");
    this.promptOpen = set(el("button", "stage-quiet-button", promptHead, "read it"), { type: "button" });
    this.promptOpen.addEventListener("click", () => this.showPrompt());
    this.chips = el("div", "stage-chips", prompt);
    const [answer, answerHead] = part("Answer", "stage-answer");
    this.answerBox = answer;
    this.model_ = el("span", "stage-caption", answerHead);
    this.followed = el("p", "stage-caption stage-followed", answer);
    this.answer = set(el("div", "stage-text", answer), { tabindex: 0, role: "group", "aria-label": "The answer" });
    const [reward, rewardHead] = part("Reward", "stage-reward");
    this.rewardBox = reward;
    this.thenButton = set(el("button", "stage-quiet-button", rewardHead, "as it was then"), { type: "button", "aria-pressed": false, title: "The reward and every q as they were when the step had ended" });
    this.thenButton.addEventListener("click", () => this.showThen(!this.asThen));
    this.hand = new Hand(this.rewardBox, { act: (act) => this.callbacks.onHand?.({ ...act, run: this.run.id }) });
    this.rewardValue = this.hand.value;
    [this.updateBox] = part("Q update", "stage-update");
    this.updateRows = el("div", "", this.updateBox);
    this.credit = el("p", "stage-caption", this.updateBox);
    [this.writeBox] = part("New memory", "stage-write");
    this.writeRows = el("div", "", this.writeBox);
    this.card = set(el("div", "stage-card"), { role: "region", "aria-label": "Memory", tabindex: 0 });
    this.card.hidden = true;
  }

  // A slider and a field for each setting that can be tried, the way back, and the way on: to use them from now on.
  buildTries(box) {
    this.tries = {};
    for (const [name, { symbol, name: said, step, least, most }] of Object.entries(TRIED)) {
      const label = el("div", name === "weight" ? "stage-try stage-lambda" : "stage-try", box);
      el("span", "", label, symbol);
      const rail = el("span", "stage-rail", label);
      const slider = set(el("input", "", rail), { type: "range", step, "aria-label": said });
      const field = set(el("input", "stage-number", label), { type: "number", step, min: least, max: most, "aria-label": `${symbol} as a number` });
      slider.addEventListener("input", () => this.setTried({ ...this.tried, [name]: Number(slider.value) }));
      field.addEventListener("change", () => {
        const value = parseFloat(field.value);
        this.setTried({ ...this.tried, [name]: Number.isFinite(value) ? clamp(step < 1 ? value : Math.round(value), least, most) : null });
      });
      this.tries[name] = { label, slider, field, ticks: el("span", "stage-flips", rail) };
    }
    this.triesReset = set(el("button", "stage-quiet-button", box, "as recorded"), { type: "button", title: "Back to the settings of the step" });
    this.triesReset.addEventListener("click", () => this.setTried({}));
    this.useButton = set(el("button", "stage-quiet-button", box, "Use from the next step on"), { type: "button" });
    this.useButton.addEventListener("click", () => this.callbacks.onUse?.(this.toUse));
  }

  buildTools(tools) {
    const choice = (name, title, values, act) => {
      const label = el("label", "", tools);
      el("span", "stage-caption", label, name);
      const list = set(el("select", "", label), { "aria-label": title, title });
      for (const value of values) set(el("option", "", list, value), { value });
      list.addEventListener("change", () => {
        // The keys are for the step again.
        list.blur();
        act(list.value);
        this.callbacks.onLook?.();
      });
      return list;
    };
    this.colours = choice("colour", "Colour of the map", MAP_COLOURS, (value) => {
      this.map.colour = value;
      this.map.dirty = true;
      this.showLegend();
      this.redraw();
    });
    choice("size", "Size of the map's points", ["uses", "none"], (value) => this.map.sizeBy(value));
    this.search = set(el("input", "stage-search", tools), { type: "search", placeholder: "search", "aria-label": "Search the texts and metadata of memories", maxlength: 200 });
    this.search.addEventListener("input", () => {
      this.find(this.search.value);
      this.callbacks.onLook?.();
    });
    this.found = set(el("output", "stage-caption", tools), { "aria-live": "polite" });
    const button = (text, name, act) => {
      const made = set(el("button", "stage-tool", tools, text), { type: "button", title: name, "aria-label": name });
      made.addEventListener("click", () => act(made));
      return made;
    };
    button("+", "Zoom in", () => this.map.zoom(1.4));
    button("−", "Zoom out", () => this.map.zoom(1 / 1.4));
    button("⌂", "Whole map (double click)", () => this.map.reset());
    this.alone = button("▭", "The map over the whole stage, and back (M)", () => this.showMapAlone());
    button("◌", "Lasso: draw around memories (Shift and drag)", (made) => {
      this.map.lassoing = !this.map.lassoing;
      set(made, { "aria-pressed": this.map.lassoing });
    });
  }

  // --- data and size ----------------------------------------------------------------------------------------------

  // The whole run as a film over the stage; `onOpen` gets the step at which a person stops it.
  showFilm(film, strip, onOpen) {
    this.film?.close();
    this.halt();
    const { x, y } = this.model.data.memories;
    const placeOf = (id) => {
      const n = this.model.numbers.get(id);
      return Number.isFinite(x[n]) ? [x[n], y[n]] : null;
    };
    this.film = new Film(this.root, { film, strip, q: this.run.q, placeOf, onOpen, onClose: () => (this.film = null) });
  }

  // Other data, in which the step that is shown may have gone further: that plays. What is not at hand gives way.
  update(data, at = null) {
    const shown = this.model?.steps[this.index];
    const was = shown ? this.most() : null;
    const stood = shown && was === LAST && this.t === LAST ? this.standing() : null;
    const moving = this.model?.swing ? { ...this.model, goal: this.ends() } : null;
    this.model = new Model(data);
    this.run = data.run;
    let index = at ?? (shown ? this.model.indexOf(shown.step) : this.index);
    if (index < 0) index = this.model.steps.length - 1;
    const same = shown && this.model.steps[index]?.step === shown.step;
    this.index = index;
    this.hovered = null;
    this.model.asThen = this.asThen;
    if (same && stood && !this.swingOn(moving)) this.swingFrom(stood);
    if (this.pinned !== null) this.pinned = this.model.numbers.get(this.pinnedId) ?? null;
    this.relayout();
    const most = this.most();
    if (!same) this.t = this.goal = most;
    else if (was !== null && most > was) this.goTo(most);
    else [this.t, this.goal] = [Math.min(this.t, most), Math.min(this.goal, most)];
    this.redraw();
  }

  get step() {
    return this.model.steps[this.index];
  }

  // What the step's reward and update count as in what is shown.
  get counted() {
    return this.model.counted(this.index);
  }

  // Where every q is drawn now, and what the reward is and moves.
  standing() {
    const { model, index, counted } = this;
    const q = new Map(Object.keys(model.data.memories.now ?? {}).map((n) => [model.ids[n], model.moved(index, Number(n)).after]));
    const after = new Map((counted.update?.changes ?? []).map((one) => [model.ids[one.memory], this.afterShown(one)]));
    return { q, after, reward: this.rewardShown };
  }

  // q after a change and the reward, as they are shown: on their way while they move.
  afterShown({ memory, after }) {
    const { swing, ids } = this.model;
    return mix(swing?.after.get(ids[memory]) ?? after, after, swing ? ease(swing.share) : 1);
  }

  get rewardShown() {
    const { swing } = this.model;
    const reward = this.counted.reward?.reward ?? null;
    return reward !== null && swing?.reward != null ? mix(swing.reward, reward, ease(swing.share)) : reward;
  }

  // Where that ends.
  ends() {
    const { model } = this;
    const { swing } = model;
    model.swing = null;
    const ends = this.standing();
    model.swing = swing;
    return ends;
  }

  // Other data amid a movement: where it leads to the same, it goes on. Whether it does.
  swingOn(was) {
    if (!was) return false;
    const { goal, swing, ids } = was;
    const now = this.ends();
    const agrees = (one, other) => [...one].every(([id, q]) => !other.has(id) || other.get(id) === q);
    if (goal.reward !== now.reward || !agrees(goal.q, now.q) || !agrees(goal.after, now.after)) return false;
    const from = [...swing.from].map(([n, q]) => [this.model.numbers.get(ids[n]), q]).filter(([n]) => n !== undefined);
    this.model.swing = { ...swing, from: new Map(from) };
    return true;
  }

  // The step with its reward and every q as they were when it had ended, or as they count now.
  showThen(wanted) {
    this.asThen = this.model.asThen = wanted;
    this.model.swing = null;
    set(this.thenButton, { "aria-pressed": wanted });
    this.relayout();
    this.redraw();
  }

  async copyLink() {
    const link = this.callbacks.link();
    try {
      await navigator.clipboard.writeText(link);
    } catch {
      // Only a page that came over https or from this machine may write there by itself.
      const field = set(el("textarea", "", document.body, link), { "aria-hidden": true });
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    this.linkButton.textContent = "Copied";
    setTimeout(() => (this.linkButton.textContent = "Copy link"), 1500);
  }

  // What has moved since then goes from where it stood to where it is now.
  swingFrom({ q, after, reward }) {
    const now = this.standing();
    const from = [...q].filter(([id, was]) => now.q.has(id) && now.q.get(id) !== was).map(([id, was]) => [this.model.numbers.get(id), was]);
    if (this.still.matches || (!from.length && reward === now.reward)) return;
    this.model.swing = { from: new Map(from), after, reward, share: 0 };
  }

  // The last phase that the step has had.
  most() {
    const next = this.step?.next;
    // The turns of an answer that has not ended.
    if (next === 4 && this.step.answer?.turns.length) return 3 + UNDER_WAY;
    return next ? next - 1 : LAST;
  }

  resize() {
    const width = Math.round(this.root.clientWidth);
    if (width && width !== this.width) this.relayout();
  }

  relayout() {
    if (!this.model) return;
    const width = (this.width = Math.round(this.root.clientWidth) || 1200);
    const size = (this.size = width >= WIDE ? "wide" : width >= NARROW ? "middle" : "narrow");
    set(this.root, { "data-size": size, "data-theme": (this.theme = themeOf(this.root)) });
    this.nameAll();
    this.root.style.setProperty("--stage-height", `${Math.max(size === "narrow" ? HEIGHT : LOW, this.callbacks.height?.() ?? HEIGHT)}px`);
    const box = (element) => [Math.max(120, element.clientWidth), Math.max(120, element.clientHeight)];
    // Where the map stands alone there is no room for them.
    if (this.ranksBox.clientWidth || !this.ranks.model) this.ranks.layout(...box(this.ranksBox), this.model, this.theme);
    this.map.layout(...box(this.mapBox), this.model, this.theme);
    this.axis.layout(...[this.axisBox.clientWidth, this.axisBox.clientHeight], this.model, this.theme);
    set(this.flights, { width, height: this.root.clientHeight });
    this.showLegend();
    if (this.step) this.showStep();
    this.callbacks.onLayout?.();
  }

  // The phases by their whole names where all of them have room, also bold.
  nameAll() {
    const longest = Math.max(...PHASES.map((name) => boxOf(name, { x: 0, y: 0, size: 13, weight: 650 })[2]));
    set(this.root, { "data-tight": this.size === "wide" && longest + AROUND_NAME > this.scrubber.clientWidth / LAST });
  }

  // The map alone on the stage, and back.
  showMapAlone(wanted = !this.root.classList.contains("stage-map-alone")) {
    this.root.classList.toggle("stage-map-alone", wanted);
    set(this.alone, { "aria-pressed": wanted });
    this.relayout();
    this.redraw();
  }

  showLegend() {
    this.legend.replaceChildren();
    for (const [name, colour] of this.map.legend()) {
      const entry = el("span", "", this.legend);
      el("i", "", entry).style.background = css(colour);
      entry.append(shortened(name, 24));
    }
    if (!this.legend.children.length) {
      el("span", "", this.legend, "▲ above ▼ below the middle of q · ● never updated · ◎ copies");
    }
    const { placeless } = this.model;
    if (placeless) el("span", "", this.legend, `${placeless.toLocaleString("en")} ${placeless === 1 ? "memory has" : "memories have"} no place on this map`);
  }

  // --- one step ---------------------------------------------------------------------------------------------------

  showStep() {
    const { step, model } = this;
    this.again = decidedAgain(step, this.tried);
    this.flips = flipsOf(this.again);
    this.ranks.setStep(this.index, this.again);
    this.map.setStep(this.index);
    this.axis.setStep(this.index);
    this.find(this.search.value);
    const facts = [`Step ${step.step.toLocaleString("en")}`, `epoch ${step.epoch}`, step.task.family].filter(Boolean);
    this.taskHead.textContent = facts.join(" · ");
    this.taskText.textContent = step.task.intent;
    this.showChips();
    this.showAnswer();
    const { reward, update } = this.counted;
    this.hand.show(this.callbacks.hand?.() ?? null, { ...step, reward }, this.asThen);
    this.thenButton.hidden = !this.hand.stands || step.next !== null;
    this.linkButton.hidden = !this.callbacks.link;
    this.hand.verdict.textContent = reward ? rewardSaid(reward) : (step.missing[5] ?? "");
    this.updateRows.replaceChildren();
    this.changes = (update?.changes ?? []).map((change) => {
      const now = model.now(this.index, change.memory);
      const row = set(el("div", "stage-change", this.updateRows), { ...model.marks(this.index, change.memory), title: change.formula });
      el("b", "", row, model.names[change.memory]);
      el("span", "stage-number", row, signed(change.before));
      el("span", "", row, "→");
      const swatch = el("i", "stage-swatch", row);
      const after = el("b", "stage-number", row);
      const delta = el("span", "stage-number stage-delta", row);
      // Beside a long name it has no room; it stands on the axis too.
      delta.hidden = model.names[change.memory].length > 10;
      const { left } = model.moved(this.index, change.memory);
      if (now !== left) {
        // Both have no room; how far it moved here stands on the axis too.
        delta.hidden = true;
        el("span", "stage-number stage-caption", row, `now ${signed(now)}`);
      }
      this.link(row, change.memory);
      return { change, swatch, after, delta };
    });
    const own = this.hand.stands?.credit;
    const named = (wanted) => Object.entries(own).filter(([, reward]) => (reward === null) === wanted).map(([id, reward]) => `${model.labels[model.numbers.get(id)] ?? id}${wanted ? "" : ` ${signed(reward)}`}`);
    const parts = own ? [["not credited", named(true)], ["with a reward of their own", named(false)]].filter(([, names]) => names.length) : [];
    const credit = own ? `By ${this.hand.stands.credit_by}, ${parts.map(([what, names]) => `${what}: ${names.join(", ")}`).join("; ")}.` : step.credit;
    this.credit.textContent = credit;
    this.credit.hidden = !credit;
    if (!this.changes.length) el("p", "stage-caption", this.updateRows, step.missing[6] ?? (step.lines[5] || "No q moved."));
    else if (update.others) el("p", "stage-caption", this.updateRows, `and ${update.others} other values`);
    this.writeRows.replaceChildren();
    for (const operation of step.write?.operations ?? []) {
      const row = el("div", "stage-written", this.writeRows, operation.line);
      if (operation.memory === null || operation.memory === undefined) continue;
      set(row, { "data-memory": model.ids[operation.memory] });
      this.link(row, operation.memory);
    }
    if (!this.writeRows.children.length) el("p", "stage-caption", this.writeRows, step.missing[7] ?? "Nothing was written.");
    this.showTries();
    if (this.pinned !== null) this.showCard();
    else if (!this.selection) this.closeCard();
    this.flown = null;
    this.lightUp();
  }

  link(node, n) {
    node.addEventListener("pointerenter", () => this.hover(n));
    node.addEventListener("pointerleave", () => this.hover(null));
    node.addEventListener("click", () => this.pin(n));
  }

  showChips() {
    const { step, model } = this;
    this.chips.replaceChildren();
    const selected = selectedAt(this.again, this.weight);
    this.chosen = selected.join();
    const recorded = new Set(step.decision?.selected ?? []);
    for (const n of selected) {
      const chip = set(el("button", "stage-chip", this.chips), { type: "button", "data-memory": model.ids[n] });
      if (!recorded.has(n)) chip.classList.add("stage-chip-new");
      el("b", "", chip, model.names[n]);
      el("span", "", chip, shortened(model.intent(n), 34));
      if (step.follows?.includes(n)) chip.setAttribute("data-followed", "true");
      this.link(chip, n);
    }
    for (const n of recorded) {
      if (selected.includes(n)) continue;
      const chip = set(el("button", "stage-chip stage-chip-gone", this.chips), { type: "button", "data-memory": model.ids[n] });
      el("b", "", chip, model.names[n]);
      this.link(chip, n);
    }
    if (!selected.length && !recorded.size) el("p", "stage-caption", this.chips, step.decision ? "no memory" : (step.missing[3] ?? ""));
    this.promptOpen.hidden = !step.prompt;
    this.lightUp();
  }

  showAnswer() {
    const { step, model } = this;
    this.answer.replaceChildren();
    this.arriving = this.waiting = null;
    this.words = [];
    this.model_.textContent = step.answer ? (step.answer.simulated ? "simulated model" : step.answer.model) : "";
    const add = (text, name) => {
      if (!text) return;
      const block = el("div", name, this.answer);
      const node = document.createTextNode("");
      block.append(node);
      this.words.push({ block, node, text, from: this.letters });
      this.letters += text.length;
    };
    this.letters = 0;
    // By the names that the chips have; the longest first, which others may be parts of.
    const named = [...(step.follows ?? [])].sort((one, two) => model.labels[two].length - model.labels[one].length);
    this.followed.textContent = named.reduce((text, n) => text.replaceAll(model.labels[n], model.names[n]), step.followed);
    this.followed.title = step.followed;
    this.followed.hidden = !step.followed;
    const turns = step.answer?.turns ?? [];
    this.turnsShown = turns.length;
    for (const part of turns.flatMap(turnTexts)) add(...part);
    if (!this.words.length) add(step.missing[4] ?? "", "stage-caption");
    if (!this.words.length && step.answer) add("Not answered yet.", "stage-caption");
    this.written = null;
  }

  // While a step waits for it: what goes on, in a line, the turns so far, and what has arrived of an answer.
  showWaiting(line, text, turns) {
    this.waiting = line;
    if (turns.length && !this.turnsShown) {
      this.answer.replaceChildren();
      this.words = [];
    }
    for (const [part, name] of turns.slice(this.turnsShown).flatMap(turnTexts)) if (part) el("div", name, this.answer, part);
    this.turnsShown = Math.max(this.turnsShown, turns.length);
    this.arriving ??= el("div", "stage-said");
    this.answer.append(this.arriving);
    if (this.arriving.textContent !== text) this.arriving.textContent = text;
    this.answer.scrollTop = this.answer.scrollHeight;
    this.redraw();
  }

  // As much of the answer as has come.
  write(share) {
    const upTo = Math.round(share * this.letters);
    if (upTo === this.written) return;
    this.written = upTo;
    for (const { block, node, text, from } of this.words) {
      const part = text.slice(0, Math.max(0, upTo - from));
      if (node.data !== part) node.data = part;
      block.hidden = !part;
    }
    this.answer.scrollTop = share < 1 || this.step.next ? this.answer.scrollHeight : 0;
  }

  // What of a setting the step was decided with; null where another value cannot be tried on it.
  recorded(name) {
    const { decision, recall } = this.step;
    if (name === "k1" || name === "delta") return decision?.opens ? recall[name] : null;
    return decision && (decision.slides || (name === "k2" && decision.opens)) ? decision[name] : null;
  }

  // The λ that is tried; null: as recorded.
  get weight() {
    return this.tried.weight;
  }

  showTries() {
    const most = { k1: Math.max(this.recorded("k1") ?? 1, held(this.step)), k2: Math.max(this.recorded("k2") ?? 1, Math.min(held(this.step), 20)) };
    for (const [name, { slider, field, label, ticks }] of Object.entries(this.tries)) {
      const own = this.recorded(name);
      const { symbol, least } = TRIED[name];
      const lowest = name === "delta" ? Math.min(0, own ?? 0) : least;
      set(slider, { min: lowest, max: most[name] ?? 1 });
      slider.disabled = field.disabled = own === null;
      set(label, { title: own === null ? `This step does not hold what another ${symbol} would be decided by.` : `What the step would select under another ${symbol}. Nothing is changed by it.` });
      ticks.replaceChildren();
      if (own !== null) el("i", "stage-recorded", ticks).style.left = `${(100 * (own - lowest)) / ((most[name] ?? 1) - lowest || 1)}%`;
    }
    this.setTried(this.tried, true);
  }

  // Both phases under other settings, by name; null or none is the recorded one.
  setTried(tried, atOnce = false) {
    const was = this.tried;
    this.tried = { ...NOTHING_TRIED, ...tried };
    const changed = Object.keys(TRIED).filter((name) => was[name] !== this.tried[name]);
    if (changed.some((name) => name !== "weight")) {
      this.again = decidedAgain(this.step, this.tried);
      this.flips = flipsOf(this.again);
      this.ranks.setStep(this.index, this.again);
    }
    const { decision } = this.again;
    for (const [name, { slider, field }] of Object.entries(this.tries)) {
      const own = this.recorded(name);
      const now = own === null ? null : (this.tried[name] ?? own);
      slider.value = now ?? 0;
      if (document.activeElement !== field || atOnce) field.value = now === null ? "" : String(Number(now.toFixed(TRIED[name].places)));
    }
    this.showFlips();
    this.root.classList.toggle("stage-what-if", this.others().length > 0);
    this.triesReset.hidden = !this.others().length;
    this.showUse();
    this.ranks.settleAt(decision?.slides ? this.weight : null, atOnce || this.still.matches);
    const chosen = selectedAt(this.again, this.weight).join();
    if (chosen !== this.chosen) this.showChips();
    if (changed.length) {
      if (this.t < 3 && !atOnce) this.goTo(3);
      this.callbacks.onTried?.(this.tried);
    }
    this.redraw();
  }

  // The settings that are tried and are others than those of the step.
  others() {
    return Object.keys(TRIED).filter((name) => this.recorded(name) !== null && this.tried[name] !== null && this.tried[name] !== this.recorded(name));
  }

  // The exact λ at which the choice changes, in the pool that is shown.
  showFlips() {
    const { ticks } = this.tries.weight;
    for (const tick of ticks.querySelectorAll("i:not(.stage-recorded)")) tick.remove();
    for (const at of this.flips) el("i", "", ticks).style.left = `${100 * at}%`;
  }

  // What of the tried is another setting than the steps to come have.
  get toUse() {
    const { values } = this.callbacks.use?.() ?? {};
    return Object.fromEntries(Object.entries(this.tried).filter(([name, value]) => value !== null && name in (values ?? {}) && value !== values[name]));
  }

  showUse() {
    const use = this.callbacks.use?.() ?? null;
    this.useButton.hidden = !use;
    if (!use) return;
    const chosen = Object.entries(this.toUse).map(([name, value]) => `${TRIED[name].symbol} ${fixed(value, TRIED[name].places)}`);
    this.useButton.disabled = Boolean(use.off) || !chosen.length;
    set(this.useButton, { title: use.off || (chosen.length ? `From step ${use.step} on: ${chosen.join(", ")}` : `Nothing is tried that step ${use.step} would not have anyway`) });
  }

  // --- time -------------------------------------------------------------------------------------------------------

  // To the end of a phase: what lies ahead is played, what lies behind is shown at once.
  goTo(phase, { atOnce = false } = {}) {
    const goal = clamp(phase, 0, this.most());
    const onward = goal > this.t && !atOnce && !this.still.matches;
    this.haste = Math.max(1, (Math.ceil(goal) - Math.floor(this.t)) / HASTE);
    this.goal = goal;
    if (!onward) this.t = goal;
    this.callbacks.onPhase?.(Math.max(1, Math.ceil(goal)));
    this.redraw();
  }

  get phase() {
    return clamp(Math.ceil(this.t - 1e-9), 1, LAST);
  }

  // Play from here to the end of the step, or from its beginning when it has ended.
  play() {
    if (this.t >= this.most()) this.t = 0;
    this.playing = true;
    if (this.still.matches) {
      clearInterval(this.clock);
      this.clock = setInterval(() => (this.t < this.most() ? this.goTo(Math.floor(this.t) + 1) : this.pause()), 1200);
    }
    this.goTo(this.still.matches ? Math.floor(this.t) + 1 : this.most());
    this.haste = 1;
  }

  pause() {
    clearInterval(this.clock);
    this.playing = false;
    this.goal = this.t;
    this.redraw();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
    this.callbacks.onToggle?.(this.playing);
  }

  // As a person stops it who goes elsewhere.
  halt() {
    if (this.playing) this.toggle();
    return this;
  }

  // Another step of the data, at a phase of its own or, with null, where this one stands.
  show(index, phase = null) {
    if (!this.model.steps[index] || (index === this.index && phase === null)) return false;
    const at = Math.min(phase ?? this.phase, LAST);
    this.pause();
    this.index = index;
    this.hovered = null;
    this.showStep();
    this.t = this.goal = Math.min(at, this.most());
    if (this.selection) this.map.mark(null);
    this.callbacks.onStep?.(this.step.step, index);
    this.redraw();
    return true;
  }

  // What an address says of the view besides step and memory: the moment of the step, unless it is the end, what is tried
  // on it, and what is asked of the map.
  get look() {
    return {
      ...(this.goal < this.most() ? { phase: String(Math.round(100 * this.goal) / 100) } : {}),
      ...Object.fromEntries(Object.entries(TRIED).filter(([name]) => this.tried[name] !== null).map(([name, { at }]) => [at, String(this.tried[name])])),
      ...(this.map.colour === MAP_COLOURS[0] ? {} : { colour: this.map.colour }),
      ...(this.search.value ? { find: this.search.value } : {}),
    };
  }

  // Show what an address says; where it says nothing that can be shown, the step's end and its own settings.
  lookAt({ phase, colour, find, ...asked }) {
    const moment = parseFloat(phase);
    this.show(this.index, moment >= 0 && moment <= LAST ? moment : LAST);
    const within = ({ at, least, most, step }) => {
      const value = parseFloat(asked[at]);
      return value >= least && value <= most && (step < 1 || Number.isInteger(value)) ? value : null;
    };
    this.setTried(Object.fromEntries(Object.entries(TRIED).map(([name, one]) => [name, within(one)])), true);
    this.map.colour = this.colours.value = MAP_COLOURS.includes(colour) ? colour : MAP_COLOURS[0];
    this.map.dirty = true;
    this.search.value = (find ?? "").slice(0, this.search.maxLength);
    this.find(this.search.value);
    this.showLegend();
    this.redraw();
  }

  // One phase on or back, over the ends of the step into the next.
  turn(by) {
    const to = (by > 0 ? Math.floor(this.goal + 1e-9) : Math.ceil(this.goal - 1e-9)) + by;
    if (to > this.most()) {
      if (!this.show(this.index + 1, 1)) return this.callbacks.onEdge?.(1);
      if (!this.still.matches) this.t = 0;
      return this.goTo(1);
    }
    if (to < 1) return this.move(-1, LAST);
    this.goTo(to);
  }

  // To the step before or after; who embeds the stage is asked for what is not in the data.
  move(by, phase = null) {
    if (!this.show(this.index + by, phase)) this.callbacks.onEdge?.(by);
  }

  redraw() {
    this.frame ??= requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    this.frame = null;
    // Frames that come late move on by their time: a busy machine shows fewer of them, not a slower picture.
    const seconds = this.last === null ? FIRST_FRAME : Math.min(MOST_PER_FRAME, (now - this.last) / 1000);
    this.last = now;
    if (this.t < this.goal) {
      const phase = Math.min(LAST - 1, Math.floor(this.t));
      this.t = Math.min(this.goal, this.t + (seconds * this.speed * (this.haste ?? 1)) / SECONDS[phase]);
    }
    if (this.playing && this.t >= this.most()) this.ended();
    const { swing } = this.model;
    if (swing) {
      swing.share = Math.min(1, swing.share + seconds / SWING);
      this.map.dirty = true;
    }
    const moving = this.ranks.advance(seconds);
    this.render();
    if (swing?.share === 1) this.model.swing = null;
    if (moving || this.model.swing || this.t < this.goal || this.playing) this.redraw();
    else this.last = null;
  }

  ended() {
    if (this.callbacks.onEnd?.()) return;
    clearInterval(this.clock);
    this.playing = false;
  }

  render() {
    if (!this.step) return;
    const { t, step } = this;
    const phases = [0, ...PHASES.map((_, p) => clamp(t - p))];
    if (step.next === 4) phases[4] = clamp(phases[4] / UNDER_WAY);
    const current = this.waiting ? Math.max(4, this.phase) : this.phase;
    const most = this.most();
    this.phaseButtons.forEach((button, i) => {
      const state = i + 1 === current ? "current" : i + 1 < current ? "done" : i + 1 > most ? "waiting" : "next";
      set(button, { "data-state": state, "aria-pressed": i + 1 === current, "aria-disabled": i + 1 > most });
    });
    if (document.activeElement !== this.track || this.playing) this.track.value = t;
    const playing = this.playing ? "❚❚" : "▶";
    if (this.playButton.textContent !== playing) {
      this.playButton.textContent = playing;
      set(this.playButton, { "aria-label": this.playing ? "Pause" : "Play" });
    }
    set(this.root, { "data-step": step.step });
    const then = this.asThen ? "As it was when the step had ended · " : "";
    const said = this.waiting ?? then + this.sentence(current);
    if (this.line.textContent !== said) set(this.line, { title: said }).textContent = said;
    const lit = new Set([this.hovered, this.pinned].filter((n) => n !== null));
    const share = ease(clamp((phases[6] - 0.35) / 0.65));
    this.ranks.render(phases);
    this.map.render(phases, lit);
    this.axis.render(phases[2], share);
    this.chips.style.opacity = this.waiting ? 1 : clamp(phases[4] * 3.4 - 0.6);
    this.answerBox.style.opacity = phases[4] > 0.3 || this.waiting ? 1 : 0.35;
    this.write(ease(clamp((phases[4] - 0.35) / 0.65)));
    const { swing } = this.model;
    const given = this.counted.reward;
    const reward = given?.reward ?? null;
    const swung = swing ? ease(swing.share) : 1;
    const shownReward = swing?.reward != null ? this.rewardShown : reward * ease(phases[5]);
    for (const node of [this.rewardValue, this.hand.said, this.hand.verdict]) node.style.opacity = clamp(phases[5] * 2);
    this.rewardValue.textContent = reward === null ? (given ? "none" : "–") : signed(shownReward);
    set(this.rewardValue, { "data-outcome": given?.outcome ?? "unrated" });
    const falls = Math.min(ease(phases[5]), swing && swing.reward !== reward ? swung : 1);
    this.rewardValue.style.transform = `translateY(${mix(-46, 0, falls).toFixed(1)}px)`;
    this.updateBox.style.opacity = clamp(phases[6] * 3);
    for (const { change, swatch, after, delta } of this.changes) {
      const q = mix(change.before, this.afterShown(change), share);
      after.textContent = signed(q);
      swatch.style.background = css(qColour(q, this.run.q, this.theme));
      delta.textContent = `Δ ${signed((change.after - change.before) * share)}`;
    }
    this.writeBox.style.opacity = clamp(phases[7] * 2);
    this.fly(phases);
    this.drawFollowed(phases);
  }

  // A line from each memory that the answer follows to the answer: its height says where the action came from.
  drawFollowed(phases) {
    const chips = phases[4] >= 1 && !this.waiting ? [...this.chips.querySelectorAll("[data-followed]")] : [];
    const shown = [this.step.step, chips.length, this.size, this.root.clientWidth, this.root.clientHeight, this.chips.scrollTop, this.chosen].join();
    if (shown === this.linesShown) return;
    this.linesShown = shown;
    this.lines.replaceChildren();
    const root = this.root.getBoundingClientRect();
    const to = this.followed.getBoundingClientRect();
    const list = this.chips.getBoundingClientRect();
    // Where there is little room the list is cut off by what it stands in.
    let end = list.bottom;
    for (let box = this.chips.parentElement; box !== this.root; box = box.parentElement) {
      // A box whose parts stand for it has no place of its own.
      if (box.getClientRects().length && getComputedStyle(box).overflowY !== "visible") end = Math.min(end, box.getBoundingClientRect().bottom);
    }
    for (const chip of chips) {
      const from = chip.getBoundingClientRect();
      if (!to.width || from.bottom < list.top || from.top > list.bottom) continue;
      const [x, y] = [from.right - root.left, Math.min(from.top + from.height / 2, end) - root.top];
      const endY = to.top + to.height / 2 - root.top;
      // The answer stands below the memories or, in a middle stage, beside them.
      const beside = to.left >= from.right;
      const endX = (beside ? to.left - 2 : Math.min(to.left + this.followedWidth(), to.right) + 4) - root.left;
      const path = beside ? `M${x} ${y} H${(x + endX) / 2} V${endY} H${endX}` : `M${x} ${y} h4 q4 0 4 4 V${endY - 4} q0 4 -4 4 H${endX}`;
      svg("path", { class: "stage-followed-line", "data-memory": chip.dataset.memory, d: path }, this.lines);
    }
  }

  // How wide the words about the answer are.
  followedWidth() {
    const range = document.createRange();
    range.selectNodeContents(this.followed);
    return range.getBoundingClientRect().width;
  }

  // What the current phase did, in words; under other settings, what they would have changed.
  sentence(phase) {
    const { step, model } = this;
    const said = step.lines[phase - 1] || step.missing[phase] || "";
    if (!this.root.classList.contains("stage-what-if")) return phase === 3 && step.decision?.warnings.length ? `${said} · ${step.decision.warnings[0]}` : said;
    const now = selectedAt(this.again, this.weight);
    const names = (numbers) => numbers.map((n) => model.names[n]).join(", ");
    const entered = now.filter((n) => !step.decision.selected.includes(n));
    const left = step.decision.selected.filter((n) => !now.includes(n));
    const change = entered.length || left.length ? [entered.length ? `${names(entered)} added` : "", left.length ? `${names(left)} removed` : ""].filter(Boolean).join(", ") : "the same memories are selected";
    const tried = this.others().map((name) => {
      const { symbol, places } = TRIED[name];
      return `${symbol} were ${fixed(this.tried[name], places)} (recorded: ${fixed(this.recorded(name), places)})`;
    });
    const beyond = this.again.known === false ? ` Of the ${held(step)} nearest only: the step holds no more.` : "";
    return `What if ${tried.join(" and ")}: ${change}.${beyond}`;
  }

  // What travels between the parts: the query to the map, the chosen to the prompt, the reward to the credited.
  fly(phases) {
    const { step } = this;
    const flights = [];
    const { swing } = this.model;
    const moving = swing || this.t < this.goal || this.t !== Math.round(this.t);
    // To ask where things are has a browser lay them out.
    if (!moving) return this.flights.replaceChildren();
    const root = this.root.getBoundingClientRect();
    const middle = (node) => {
      const box = node?.getBoundingClientRect();
      return box && box.width ? [box.left + Math.min(box.width / 2, 30) - root.left, box.top + box.height / 2 - root.top] : null;
    };
    if (phases[1] < 1 && step.query) {
      const plot = this.map.box.getBoundingClientRect();
      const [x, y] = this.map.at(...step.query);
      const scale = plot.width / this.map.width || 1;
      flights.push([middle(this.taskText), [plot.left - root.left + x * scale, plot.top - root.top + y * scale], ease(phases[1]), "star"]);
    }
    if (phases[4] > 0 && phases[4] < 0.45) {
      for (const chip of this.chips.querySelectorAll(".stage-chip:not(.stage-chip-gone)")) {
        const row = this.ranks.rows.find((one) => this.model.ids[one.n] === chip.dataset.memory);
        flights.push([middle(row?.b?.other), middle(chip), ease(phases[4] / 0.45), "chosen"]);
      }
    }
    if (phases[6] > 0 && phases[6] < 0.35) {
      for (const one of this.axis.dots.filter((dot) => dot.moved.moves)) flights.push([middle(this.rewardValue), middle(one.dot), ease(phases[6] / 0.35), "reward"]);
    }
    if (swing && swing.share < 0.45) {
      for (const one of this.axis.dots.filter((dot) => swing.from.has(dot.n) && dot.dot)) flights.push([middle(this.rewardValue), middle(one.dot), ease(swing.share / 0.45), "reward"]);
    }
    const whole = flights.filter(([from, to]) => from && to);
    while (this.flights.children.length > whole.length) this.flights.lastChild.remove();
    whole.forEach(([from, to, share, kind], i) => {
      const node = this.flights.children[i] ?? svg("circle", { r: 6 }, this.flights);
      const lift = 40 * Math.sin(Math.PI * share);
      set(node, { class: `stage-flight-${kind}`, cx: mix(from[0], to[0], share).toFixed(1), cy: (mix(from[1], to[1], share) - lift).toFixed(1) });
    });
  }

  // --- one memory -------------------------------------------------------------------------------------------------

  hover(n) {
    if (n === this.hovered) return;
    this.hovered = n;
    if (n !== null) this.map.show(n);
    else if (!this.overMap) this.map.openGroup(-1);
    this.lightUp();
    this.redraw();
  }

  lightUp() {
    const ids = [this.hovered, this.pinned].filter((n) => n !== null).map((n) => this.model.ids[n]);
    this.root.classList.toggle("stage-has-lit", ids.length > 0);
    for (const node of this.root.querySelectorAll("[data-memory]")) {
      const isLit = ids.includes(node.dataset.memory);
      node.classList.toggle("stage-lit", isLit);
      if (isLit) node.setAttribute("data-lit", "true");
      else node.removeAttribute("data-lit");
    }
  }

  // Keep a memory lit and open its card; null lets it go.
  pin(n) {
    this.pinned = n === this.pinned ? null : n;
    this.pinnedId = this.pinned === null ? null : this.model.ids[this.pinned];
    this.selection = null;
    if (this.pinned === null) this.closeCard();
    else {
      this.map.show(this.pinned);
      this.showCard();
    }
    this.lightUp();
    this.callbacks.onPin?.(this.pinnedId);
    this.redraw();
  }

  walk(by) {
    const { rows } = this.ranks;
    if (!rows.length) return;
    const at = rows.findIndex((row) => (this.hovered === null ? row.group.matches(":focus") : row.n === this.hovered));
    const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : clamp(at + by, 0, rows.length - 1)];
    for (const row of rows) set(row.group, { tabindex: row === next ? 0 : -1 });
    next.group.focus({ preventScroll: true });
    this.hover(next.n);
    if (this.pinned !== null && this.pinned !== next.n) this.pin(next.n);
  }

  closeCard() {
    this.unlight();
    this.card.hidden = true;
    this.card.replaceChildren();
    this.selection = null;
  }

  // What lies near the memory of another card is lit no longer.
  unlight() {
    if (this.lightens !== null && this.lightens !== this.pinned) {
      this.map.mark(null);
      this.lightens = null;
    }
  }

  openCard(title) {
    this.unlight();
    this.card.hidden = false;
    this.card.replaceChildren();
    this.card.scrollTop = 0;
    const head = el("div", "stage-card-head", this.card);
    el("h2", "", head, title);
    const close = set(el("button", "stage-quiet-button", head, "✕"), { type: "button", "aria-label": "Close" });
    close.addEventListener("click", () => this.dismiss());
    return this.card;
  }

  dismiss() {
    if (this.pinned !== null) return this.pin(null);
    if (this.selection) this.map.mark(null);
    this.closeCard();
  }

  showCard() {
    const { model, step, pinned: n } = this;
    const table = model.data.memories;
    const card = this.openCard(model.labels[n]);
    card.removeAttribute("data-q");
    set(card, model.marks(this.index, n));
    el("p", "stage-card-intent", card, model.intent(n) || "This bank does not hold the text of this memory.");
    const candidate = step.candidates.find((one) => one.memory === n);
    const rows = el("dl", "stage-facts", card);
    const fact = (name, value) => {
      el("dt", "", rows, name);
      el("dd", "", rows, value);
    };
    const moved = model.moved(this.index, n);
    if (candidate) {
      if (candidate.own) fact("agent's score", `${candidate.own}, rank ${candidate.rank_a}`);
      if (step.recall?.rule === "own score") fact("cosine by vectors", fixed(candidate.similarity));
      else fact("similarity", `${fixed(candidate.similarity)}, rank ${candidate.rank_a}`);
      if (candidate.z) fact("z (sim, q)", candidate.z.map((z) => signed(z)).join(", "));
      if (candidate.score != null) fact("score", `${signed(candidate.score)}${candidate.rank_b == null ? "" : `, rank ${candidate.rank_b}`}`);
      else if (candidate.rank_b != null) fact("rank in B", String(candidate.rank_b));
    }
    fact("q", moved.moves ? `${signed(moved.before)} → ${signed(moved.left)}` : Number.isFinite(moved.before) ? signed(moved.before) : "not known here");
    if (Number.isFinite(moved.left) && model.now(this.index, n) !== moved.left) fact("q now", signed(model.now(this.index, n)));
    fact("updates", String(moved.visits));
    if (table.outcome[n]) fact("written", `${table.step[n] > 0 ? `step ${table.step[n]}` : "given before the first step"}, ${table.outcome[n]}`);
    if (model.family(n)) fact("family", model.family(n));
    if (table.about[n]) fact("metadata", table.about[n]);
    if (candidate?.why) el("p", `stage-why ${candidate.selected ? "stage-why-in" : ""}`, card, `${candidate.selected ? "Selected" : "Not selected"}: ${candidate.why}.`);
    else if (!candidate) el("p", "stage-why", card, this.hand.stands?.lost?.[model.ids[n]] ?? "Not among the memories that phase A looked at closely in this step.");
    if (candidate?.taken) el("p", "stage-why", card, this.rangesOf(candidate));
    this.labels(card, n);
    const actions = this.callbacks.actions ?? [];
    if (actions.length) {
      const box = el("div", "stage-actions", card);
      for (const [name, label] of actions) {
        const button = set(el("button", "stage-quiet-button", box, label), { type: "button" });
        button.addEventListener("click", () => this.callbacks.onAct?.(name, model.ids[n]));
      }
    }
    this.credits(card, n);
    this.curve(card, n);
    this.nearestOf(card, n);
    const text = model.text(n);
    if (text !== null) set(el("div", "stage-text stage-experience", card, text), { tabindex: 0, role: "group", "aria-label": "Experience" });
  }

  // Who of the prompt the reward of the step credits, to be changed.
  credits(card, n) {
    const { hand } = this;
    const stands = hand.stands;
    const id = this.model.ids[n];
    if (!stands?.credited.includes(id)) return;
    const box = el("div", "stage-actions stage-credit", card);
    const button = (what, text, title) => {
      const made = set(el("button", "stage-quiet-button", box, text), { type: "button", "data-credit": what, title: hand.off || title });
      made.disabled = Boolean(hand.off);
      made.addEventListener("click", () => hand.ask({ do: "credit", what, memory: id, reason: hand.reason.value }, made));
    };
    const own = stands.credit?.[id];
    if (own !== null) button("not", "not its fault", "The reward of this step does not move its q");
    if (stands.credited.length > 1) button("only", "credit only this one", "The reward of this step moves its q and no other");
    if (stands.credit) {
      button("all", "credit all again", "Every memory of the prompt gets the reward of the step");
      const said = own === null ? "no credit" : own === undefined ? "the reward of the step" : signed(own);
      el("span", "stage-caption", box, `here: ${said}, by ${stands.credit_by}`);
    }
  }

  // Whether it was right to recall in this step, by whom and from where, to be said and taken back.
  labels(card, n) {
    const { hand } = this;
    const known = hand.stands?.labels?.[this.model.ids[n]] ?? [];
    if (!hand.stands?.labels) return;
    const box = el("div", "stage-actions stage-label", card);
    const off = hand.off || hand.stands.label_off;
    const mine = known.find((one) => one.mine);
    const button = (grade, text, title) => {
      const is = Boolean(mine) && grade !== null && (mine.grade > 0) === (grade > 0);
      const made = set(el("button", "stage-quiet-button", box, text), { type: "button", "data-label": grade ?? "undo", title: off || title, "aria-pressed": is });
      made.disabled = Boolean(off) || (grade === null && !mine);
      made.addEventListener("click", () => this.label(n, is ? undefined : grade, made));
    };
    const key = "A label moves no q. Pressed again it is taken back · key L";
    const came = this.step.candidates.some((one) => one.memory === n);
    button(2, came ? "relevant" : "should have come", `It was right to recall for this task. ${key}`);
    button(0, "irrelevant", `It should not come for this task. ${key}`);
    button(null, "↶", "Undo your label of this memory");
    for (const one of known) {
      const who = `${one.mine ? "you" : one.rater}${one.source === "person" ? "" : ` (${one.source})`}`;
      const said = el("span", "stage-caption", box, [`${who}: ${one.said}`, one.since, one.reason && `“${one.reason}”`].filter(Boolean).join(" · "));
      set(said, { title: one.when });
    }
    this.uses(card, n, off);
  }

  // What the answer made of a memory of the prompt: as people say, by its actions, and by words as a hint.
  uses(card, n, off) {
    const id = this.model.ids[n];
    const known = this.hand.stands.uses[id];
    if (!known) return;
    const box = set(el("div", "stage-actions stage-use", card), { role: "group", "aria-label": "What the answer made of it" });
    el("span", "stage-caption", box, "The answer");
    for (const used of USES) {
      const is = known.mine === used;
      const made = set(el("button", "stage-quiet-button", box, used), { type: "button", "data-use": used, "aria-pressed": is, title: off || `The answer ${used} this memory. It moves no q; pressed again it is taken back · key A` });
      made.disabled = Boolean(off);
      made.addEventListener("click", () => this.use(n, is ? null : used, made));
    }
    el("span", "stage-caption", box, [...known.said, known.hint].filter(Boolean).join(" · "));
  }

  // Give a grade, take it back (undefined) or undo what was said last (null).
  label(n, grade, button = null) {
    const about = { memory: this.model.ids[n], reason: this.hand.reasons.get(this.hand.id) ?? "" };
    this.hand.ask(grade === null ? { do: "unlabel", ...about } : { do: "label", grade: grade ?? null, ...about }, button);
  }

  // Say what the answer made of it, or take it back (null).
  use(n, used, button = null) {
    this.hand.ask({ do: "use", memory: this.model.ids[n], used, reason: this.hand.reasons.get(this.hand.id) ?? "" }, button);
  }

  // The key of uses: used, ignored, contradicted, nothing said, and so on, for the memory whose card is open.
  useKey() {
    const { hand, pinned: n } = this;
    if (!hand.stands?.uses) return false;
    const known = n === null ? null : hand.stands.uses[this.model.ids[n]];
    const off = hand.off || hand.stands.label_off || (known ? "" : "A says what the answer made of a memory of its prompt: click one first.");
    if (off) hand.tell(off);
    else this.use(n, USES[USES.indexOf(known.mine) + 1] ?? null);
    return true;
  }

  // The key of labels: relevant, irrelevant, no label, and so on, for the memory whose card is open.
  labelKey() {
    const { hand, pinned: n } = this;
    if (!hand.stands?.labels) return false;
    const off = hand.off || hand.stands.label_off || (n === null ? "L labels the memory whose card is open: click one in the pool or on the map." : "");
    if (off) hand.tell(off);
    else {
      const mine = hand.stands.labels[this.model.ids[n]]?.find((one) => one.mine);
      this.label(n, mine ? (mine.grade > 0 ? 0 : undefined) : 2);
    }
    return true;
  }

  // Its nearest by similarity of the embeddings, which a map in two dimensions can only hint at.
  nearestOf(card, n) {
    const nearest = this.model.nearest(n);
    if (!nearest?.length) return;
    const head = el("h3", "stage-card-head", card, "Nearest by similarity");
    const light = set(el("button", "stage-quiet-button", head, "on the map"), { type: "button", "aria-pressed": this.lightens === n });
    light.addEventListener("click", () => {
      this.lightens = this.lightens === n ? null : n;
      set(light, { "aria-pressed": this.lightens === n });
      this.map.mark(this.lightens === n ? new Set([n, ...nearest.map(([m]) => m)]) : null);
    });
    this.list(card, nearest.map(([m, similarity]) => [m, `${fixed(similarity)} ${this.model.labels[m]} ${this.model.intent(m)}`]));
  }

  // Memories as lines to point at and to click.
  list(parent, entries) {
    const list = el("ul", "stage-list", parent);
    for (const [n, text] of entries) this.link(set(el("li", "", list, shortened(text, 70)), { "data-memory": this.model.ids[n] }), n);
  }

  // At which λ greedy selection takes a memory.
  rangesOf(candidate) {
    const ranges = candidate.taken;
    const own = `λ is ${fixed(this.step.decision.weight, 3)}`;
    if (!ranges.length) return "No λ selects it.";
    if (ranges.length === 1 && ranges[0][0] === 0 && ranges[0][1] === 1) return "Every λ selects it.";
    const parts = ranges.map(([low, high]) => (low === 0 ? `below ${fixed(high, 4)}` : high === 1 ? `above ${fixed(low, 4)}` : `from ${fixed(low, 4)} to ${fixed(high, 4)}`));
    return `Selected by λ ${parts.join(" and ")}; ${own}.`;
  }

  // How its q came about, on the axis of all q.
  curve(parent, n) {
    const points = this.model.history(this.index, n);
    if (!points.length) return;
    const [width, height] = [248, 64];
    const picture = svg("svg", { class: "stage-curve", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `q since it was written: ${points.map(([step, q]) => `step ${step} ${signed(q)}`).slice(-6).join(", ")}` }, parent);
    const [least, middle, most] = this.model.qRange;
    const first = points[0][0];
    const x = (step) => 4 + ((width - 48) * (step - first)) / Math.max(1, this.step.step - first);
    const y = (q) => height - 6 - ((height - 12) * (q - least)) / (most - least || 1);
    svg("line", { class: "stage-rule", x1: 0, x2: width - 40, y1: y(middle), y2: y(middle) }, picture);
    const path = points.map(([step, q], i) => (i ? `H${x(step).toFixed(1)}V${y(q).toFixed(1)}` : `M${x(step).toFixed(1)},${y(q).toFixed(1)}`)).join("");
    svg("path", { class: "stage-curve-line", d: `${path}H${x(this.step.step).toFixed(1)}` }, picture);
    for (const [step, q] of points) svg("circle", { cx: x(step).toFixed(1), cy: y(q).toFixed(1), r: 2.4, fill: css(qColour(q, this.run.q, this.theme)) }, picture);
    svg("text", { class: "stage-mini stage-strong", x: width, y: clamp(y(points.at(-1)[1]) + 3, 9, height - 2), "text-anchor": "end" }, picture, signed(points.at(-1)[1]));
  }

  showPrompt() {
    const { step, model } = this;
    if (this.pinned !== null) this.pin(null);
    this.selection = "prompt";
    const card = this.openCard("What was sent first");
    card.removeAttribute("data-memory");
    card.removeAttribute("data-q");
    for (const message of step.prompt ?? []) {
      el("h3", "", card, message.role);
      const box = el("div", "stage-text", card);
      for (const [text, n] of message.parts) {
        const part = el("span", n === null ? "" : "stage-span", box, text);
        if (n === null) continue;
        set(part, { "data-memory": model.ids[n] });
        this.link(part, n);
      }
    }
  }

  // --- search and lasso -------------------------------------------------------------------------------------------

  find(asked) {
    const wanted = asked.trim().toLowerCase();
    if (!wanted) {
      if (this.found.textContent) this.map.mark(null);
      this.found.textContent = "";
      return;
    }
    const { model } = this;
    const { intents, intent, texts, about } = model.data.memories;
    const inIntent = intents.map(([text]) => text.toLowerCase().includes(wanted));
    const { q } = model.before(this.index);
    const hits = new Set();
    for (let n = 0; n < model.count; n++) {
      if (Number.isNaN(q[n])) continue;
      if (inIntent[intent[n]] || texts[n]?.toLowerCase().includes(wanted) || about[n]?.toLowerCase().includes(wanted) || model.labels[n].toLowerCase() === wanted) hits.add(n);
    }
    this.found.textContent = `${hits.size.toLocaleString("en")} found`;
    this.map.mark(hits);
  }

  selectedOnMap(numbers) {
    if (!numbers.length) return this.dismiss();
    if (this.pinned !== null) this.pin(null);
    this.selection = numbers;
    const { model } = this;
    const { q, visits } = model.before(this.index);
    const card = this.openCard(`${numbers.length.toLocaleString("en")} memories selected`);
    card.removeAttribute("data-memory");
    card.removeAttribute("data-q");
    const rows = el("dl", "stage-facts", card);
    const fact = (name, value) => {
      el("dt", "", rows, name);
      el("dd", "", rows, value);
    };
    const mean = (list) => list.reduce((sum, value) => sum + value, 0) / (list.length || 1);
    const seen = [...q.keys()].filter((n) => !Number.isNaN(q[n]));
    const outcomes = model.data.memories.outcome;
    fact("mean q", `${signed(mean(numbers.map((n) => q[n])))}; of all ${signed(mean(seen.map((n) => q[n])))}`);
    fact("updates", numbers.reduce((sum, n) => sum + visits[n], 0).toLocaleString("en"));
    fact("successes", `${numbers.filter((n) => outcomes[n] === "success").length} of ${numbers.length}`);
    const inside = new Set(numbers);
    const common = commonWords(numbers.map((n) => model.intent(n)), seen.filter((n) => !inside.has(n)).map((n) => model.intent(n)));
    if (common.length) fact("in common", common.join(", "));
    const actions = el("div", "stage-actions", card);
    const button = (text, act) => set(el("button", "stage-quiet-button", actions, text), { type: "button" }).addEventListener("click", act);
    button("Save as CSV", () => this.save(numbers));
    for (const [name, label] of this.callbacks.selecting ?? []) button(label, () => this.callbacks.onAct?.(name, numbers.map((n) => model.ids[n])));
    this.list(card, numbers.slice(0, 60).map((n) => [n, `${model.labels[n]} ${model.intent(n)}`]));
  }

  save(numbers) {
    const { model } = this;
    const { q, visits } = model.before(this.index);
    // A cell that begins as a formula must stay a text in a spreadsheet.
    const cell = (value) => {
      const text = typeof value === "number" ? String(value) : /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const table = model.data.memories;
    const lines = numbers.map((n) => [model.ids[n], q[n], visits[n], table.outcome[n] ?? "", table.step[n] ?? "", model.intent(n)].map(cell).join(","));
    const file = new Blob([["id,q,updates,outcome,step,intent", ...lines].join("\r\n")], { type: "text/csv" });
    const link = set(el("a"), { href: URL.createObjectURL(file), download: `${this.run.id}-step-${this.step.step}-memories.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // --- keys -------------------------------------------------------------------------------------------------------

  key(event) {
    const at = event.target;
    const types = at.tagName === "TEXTAREA" || at.tagName === "SELECT" || (at.tagName === "INPUT" && at.type !== "range");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (types && event.key !== "Escape") return;
    if (at.closest?.(".stage-tries") && event.key.startsWith("Arrow")) return;
    if (this.act(event, at)) {
      event.preventDefault();
      event.stopPropagation();
    }
  }

  // Whether a key means something here.
  act(event, at = null) {
    const { key } = event;
    // Where digits rate, those with Shift are phases; which sign they give depends on the keyboard.
    const digit = this.callbacks.digitsRate ? event.shiftKey && /^Digit([1-7])$/.exec(event.code) : /^([1-7])$/.exec(key);
    if (digit) this.halt().goTo(Number(digit[1]), { atOnce: true });
    else if (key === "ArrowRight" || key === "ArrowLeft") {
      const by = key === "ArrowRight" ? 1 : -1;
      if (event.shiftKey) this.move(by);
      else this.halt().turn(by);
    } else if (key === "ArrowDown" || key === "ArrowUp") this.walk(key === "ArrowDown" ? 1 : -1);
    else if (key === " ") {
      // A button that has the focus is pressed by it.
      if (at?.closest?.("button") && at !== this.playButton && !at.dataset.phase) return false;
      this.toggle();
    } else if (key === "Escape" && this.callbacks.onClose?.()) return true;
    else if (key === "Enter" && at?.closest?.(".stage-row")) this.pin(this.model.numbers.get(at.closest(".stage-row").dataset.memory));
    else if (key === "Escape" && (this.pinned !== null || !this.card.hidden || this.search.value)) {
      this.search.value = "";
      this.find("");
      this.dismiss();
    } else if (key === "m" || key === "M") this.showMapAlone();
    else if (key === "Escape" && this.root.classList.contains("stage-map-alone")) this.showMapAlone(false);
    else return false;
    return true;
  }
}

// The words that clearly more of some texts hold than of the others: by three standard errors of the difference.
function commonWords(texts, others) {
  const holding = (list) => {
    const counts = new Map();
    for (const text of list) for (const word of new Set(text.toLowerCase().match(/[\p{L}\p{N}]{3,}/gu) ?? [])) counts.set(word, (counts.get(word) ?? 0) + 1);
    return counts;
  };
  const [here, elsewhere] = [holding(texts), holding(others)];
  const [n, m] = [texts.length, others.length];
  const clear = [];
  for (const [word, count] of here) {
    const rest = elsewhere.get(word) ?? 0;
    const all = (count + rest) / (n + m);
    const more = count / n - rest / m;
    if (more > 3 * Math.sqrt(all * (1 - all) * (1 / n + 1 / m)) && !FUNCTION_WORDS.has(word)) clear.push([word, more]);
  }
  return clear.sort((a, b) => b[1] - a[1]).slice(0, MOST_WORDS).map(([word]) => word);
}
