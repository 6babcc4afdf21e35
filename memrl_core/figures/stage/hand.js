import { el, set, signed } from "./dom.js";

// The hand: the reward of a step beside its answer, what the world and what people gave, and the choices of the run's
// scale. It only asks: what is shown as given is what has been stored.

const LISTED = 4;
// Milliseconds in which a press takes along the reason that was typed before it.
const REASON_WAITS = 700;

export class Hand {
  constructor(box, on) {
    this.on = on;
    this.box = set(box, { "data-testid": "hand" });
    const row = el("div", "stage-reward-row", box);
    this.value = el("output", "stage-reward-value", row);
    this.said = el("div", "stage-said-by", row);
    this.verdict = el("div", "stage-verdict", box);
    this.choices = set(el("div", "stage-choices", box), { role: "group", "aria-label": "Your reward" });
    const words = el("div", "stage-words", box);
    this.reason = set(el("input", "stage-reason", words), { type: "text", maxlength: 2000, placeholder: "Reason · E", "aria-label": "Reason (optional), key E", title: "Kept with your next reward or label, and with the next word on a memory's use" });
    this.name = set(el("input", "stage-name", words), { type: "text", maxlength: 60, "aria-label": "Your name: rewards are kept under it", title: "Rewards are kept under this name. It is no proof of who you are: without a login anybody can type it." });
    this.reason.addEventListener("input", () => this.reasons.set(this.id, this.reason.value));
    this.reason.addEventListener("change", () => {
      clearTimeout(this.reasonClock);
      this.reasonClock = setTimeout(() => this.tellReason(), REASON_WAITS);
      if (this.elsewhere) this.tellReason();
    });
    this.name.addEventListener("change", () => this.on.act({ do: "name", name: this.name.value }));
    // Buttons that are drawn anew between down and up would take the press with them.
    this.choices.addEventListener("pointerdown", () => (this.held = true));
    // Who presses elsewhere may leave the page: what was typed is saved before.
    this.pressed = (event) => {
      this.elsewhere = !this.choices.contains(event.target);
      if (this.elsewhere) this.tellReason();
    };
    window.addEventListener("pointerdown", this.pressed, true);
    this.letGo = () => setTimeout(() => {
      this.held = this.elsewhere = false;
      if (this.late && this.stands) this.build();
    });
    for (const up of ["pointerup", "pointercancel"]) window.addEventListener(up, this.letGo);
    for (const field of [this.reason, this.name]) {
      field.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === "Escape") field.blur();
        event.stopPropagation();
      });
    }
    this.notice = set(el("p", "stage-caption stage-notice", box), { "aria-live": "polite" });
    this.reasons = new Map();
    this.marks = {};
    this.failure = "";
  }

  destroy() {
    window.removeEventListener("pointerdown", this.pressed, true);
    for (const up of ["pointerup", "pointercancel"]) window.removeEventListener(up, this.letGo);
    clearTimeout(this.reasonClock);
  }

  // `hand` is what pages/step/hand.py sends, null where nobody can rate; `step` the one that is shown, `asThen` as it
  // was when it had ended, before people gave rewards of their own.
  show(hand, step, asThen = false) {
    const shown = hand?.steps[step.step] ?? null;
    const id = shown?.id ?? step.id;
    if (id !== this.id) this.tellReason();
    const stands = (this.stands = shown);
    if (id !== this.id) [this.marks, this.failure] = [{}, this.pending ? this.failure : ""];
    [this.hand, this.step, this.id, this.asThen] = [hand, step, id, asThen];
    this.choices.hidden = this.reason.parentElement.hidden = !stands;
    this.said.replaceChildren();
    const reward = step.reward;
    const counts = stands ? stands.counts : (reward?.reward ?? null);
    set(this.box, { "data-reward": counts ?? "" });
    const environment = stands ? stands.environment : (reward?.environment ?? null);
    const others = asThen ? [] : (stands?.people ?? []);
    const chip = (name, value) => {
      const part = set(el("span", "stage-given", this.said), { "data-of": name });
      part.append(`${name} `);
      el("b", "stage-number", part, signed(value));
    };
    if (environment != null) chip("environment", environment);
    for (const [name, value] of others.slice(0, LISTED)) chip(name, value);
    if (others.length > LISTED) el("span", "stage-caption", this.said, `and ${others.length - LISTED} more`);
    if (stands?.mine != null && !asThen) chip("you", stands.mine);
    if (stands?.whose && !asThen && (others.length || stands.mine != null)) el("span", "stage-caption stage-counts", this.said, `counts: ${stands.whose}`);
    if (stands) this.build();
    this.tell();
  }

  build() {
    if ((this.late = Boolean(this.held))) return;
    const { hand, stands, off } = this;
    this.choices.replaceChildren();
    const press = (parent, text, name, act, look = {}) => {
      const button = set(el("button", "stage-choice", parent, text), { type: "button", "aria-label": name, title: off || name, ...look });
      button.disabled = Boolean(off);
      button.addEventListener("click", () => this.ask(act, button));
      return button;
    };
    for (const [key, label, value] of hand.scale.options) {
      const button = press(this.choices, label, `${label}: ${signed(value)} · key ${key}`, { do: "rate", key }, { "data-value": value, "data-key": key });
      if (label !== String(key)) el("kbd", "", button, String(key));
      set(button, { "aria-pressed": !this.asThen && stands.mine === value });
    }
    if (hand.scale.name === "graded") {
      const fields = el("span", "stage-grade", this.choices);
      const looks = { min: -1, max: 1, step: 0.05, value: stands.given.grade ?? 0 };
      const slider = set(el("input", "", fields), { type: "range", "aria-label": "Reward from −1 to 1", ...looks });
      const number = set(el("input", "stage-grade-number", fields), { type: "number", "aria-label": "Reward from −1 to 1, as a number", ...looks });
      const act = (field) => field.value !== "" && this.ask({ do: "rate", grade: Number(field.value) }, field);
      slider.addEventListener("input", () => (number.value = slider.value));
      for (const field of [slider, number]) {
        field.disabled = Boolean(off);
        field.addEventListener("change", () => act(field));
        field.addEventListener("keydown", (event) => event.key === "Enter" && field.blur());
      }
    }
    if (hand.scale.criteria.length) this.rubric(press);
    const last = el("span", "stage-undo", this.choices);
    if (hand.waits && !this.step.reward) press(last, "Skip", "Leave this answer unrated: no q moves · key S", { do: "skip" }, { "data-act": "skip" });
    const what = stands.undoes === "credit" ? "what you said of who is credited" : "your reward";
    const undo = press(last, "↶", `Undo ${what}: every q returns to what it was · key U`, { do: "undo" }, { "data-act": "undo" });
    const again = stands.redoes === "credit" ? "what you said of who is credited" : "the reward that you took back";
    const redo = press(last, "↷", `Give again ${again} · key Y`, { do: "redo" }, { "data-act": "redo" });
    undo.disabled ||= !stands.undo;
    redo.disabled ||= !stands.redo;
    const kept = this.reasons.get(this.id);
    if (document.activeElement !== this.reason) this.reason.value = kept ?? stands.reason;
    this.reason.disabled = Boolean(off);
    this.rater = hand.rater === "someone" ? "" : hand.rater;
    if (document.activeElement !== this.name) this.name.value = this.rater;
    set(this.name, { placeholder: "someone" });
    this.name.disabled = hand.login;
  }

  // A row of marks for each criterion; the reward is given once all of them have one.
  rubric(press) {
    const { criteria } = this.hand.scale;
    const known = Object.keys(this.marks).length ? this.marks : (this.stands.given.marks ?? {});
    const box = el("div", "stage-rubric", this.choices);
    for (const name of criteria) {
      const row = set(el("div", "", box), { role: "group", "aria-label": name });
      el("span", "", row, name);
      for (const mark of [1, 2, 3, 4, 5]) {
        const button = press(row, String(mark), `${name}: ${mark}`, null, { "data-mark": mark, "aria-pressed": known[name] === mark });
        if (criteria.find((one) => !(one in this.marks)) === name) set(button, { "data-key": mark });
      }
    }
  }

  mark(button) {
    const { criteria } = this.hand.scale;
    this.marks = { ...this.marks, [button.parentElement.getAttribute("aria-label")]: Number(button.dataset.mark) };
    if (criteria.every((name) => name in this.marks)) {
      const { marks } = this;
      this.marks = {};
      this.ask({ do: "rate", marks }, button);
    } else this.build();
  }

  // Whether a key means something here; it does what its button does.
  key(key) {
    if (!this.stands) return false;
    const name = { u: "undo", y: "redo", s: "skip" }[key.toLowerCase()];
    const button = this.choices.querySelector(name ? `[data-act="${name}"]` : `[data-key="${CSS.escape(key)}"]`);
    if (!button && /^[1-5]$/.test(key)) return this.tellKeys();
    if (!button) return false;
    // What cannot be pressed says why.
    if (button.disabled) this.tell(button.title.includes("key") ? "" : button.title);
    else button.click();
    return true;
  }

  // Which digits rate, to who presses another; false where none does.
  tellKeys() {
    const keys = [...new Set([...this.choices.querySelectorAll("[data-key]")].map(({ dataset }) => dataset.key))];
    if (!keys.length) return false;
    this.tell(`This run's scale has the keys ${keys.join(" and ")}.`);
    return true;
  }

  // Why nobody can act on this step now; "" where somebody can.
  get off() {
    return this.hand?.off || this.stands?.off || "";
  }

  ask(act, button = null) {
    if (act === null) return this.mark(button);
    if (this.pending) return;
    if (act.do === "rate") {
      clearTimeout(this.reasonClock);
      this.reasonClock = null;
      act = { ...act, reason: this.reason.value };
    } else this.tellReason();
    // A name that was typed a moment ago is that of the press, or the press is refused with it.
    if (this.name.value !== this.rater) act = { ...act, name: this.name.value };
    this.pending = true;
    this.failure = "";
    if (button) set(button, { "data-pending": "true" });
    this.on.act({ ...act, step: this.step.step, id: this.id });
    this.tell();
  }

  // The reason that waits, of a reward that stands: what is pressed next need not wait until it is saved.
  tellReason() {
    if (!this.reasonClock) return;
    clearTimeout(this.reasonClock);
    this.reasonClock = null;
    const reason = this.reason.value;
    if (this.stands?.mine != null && reason !== this.stands.reason) this.on.act({ do: "reason", reason, step: this.step.step, id: this.id });
  }

  // The answer to what was asked: "" where it was done, else why not. `saved` says whether a reason was among it, and
  // `waits` whether a press has still no answer.
  answered(failure, saved = true, waits = false) {
    this.pending = waits;
    this.failure = failure;
    for (const button of this.choices.querySelectorAll("[data-pending]")) button.removeAttribute("data-pending");
    if (!failure && saved && !this.reasonClock) this.reasons.delete(this.id);
    this.tell();
  }

  tell(now = "") {
    const { off, stands } = this;
    const said = now || this.failure || (this.pending ? "Saving …" : off || this.later() || stands?.note || "");
    if (this.notice.textContent !== said) this.notice.textContent = said;
    this.notice.classList.toggle("stage-failed", Boolean(this.failure));
  }

  // What followed in later steps from what was done to this one.
  later() {
    const later = this.hand?.later;
    if (!later || later.step !== this.step.step) return "";
    const count = later.steps.length;
    if (!count) return "No later q depends on it.";
    const named = (steps) => `${steps.slice(0, 6).join(", ")}${steps.length > 6 ? " …" : ""}`;
    const folded = `${count} later ${count === 1 ? "step was" : "steps were"} folded anew (${named(later.steps)})`;
    if (later.others === null) return `${folded}; counting which would choose otherwise …`;
    return `${folded}; ${later.others.length} would choose otherwise${later.others.length ? ` (${named(later.others)})` : ""}.`;
  }
}
