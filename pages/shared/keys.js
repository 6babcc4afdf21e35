// A key that is held says itself again: good for going through steps, not for giving rewards.
const ONCE = /^[1-5alsuy]$/i;
// Those that the hand on the stage may have a use for.
const RATES = ONCE;
// Keys of which each press counts, and what they stand for. Streamlit would make one press of those that come
// while it runs.
const COUNTED = { n: "step", ArrowLeft: "move_Back", ArrowRight: "move_Next", Home: "move_First", End: "move_Last" };
const KEPT = 200;
const SOON = 2000;
const LISTS_OWN = /^( |Enter|Tab|Shift|ArrowUp|ArrowDown|Backspace|Delete)$/;
const LEAVES = ["button", "checkbox", "color", "file", "image", "radio", "range", "reset", "submit"];

// A closed list has a field, but nobody writes in it.
const closedList = (at) => at.getAttribute?.("role") === "combobox" && at.getAttribute("aria-expanded") !== "true";
const typing = (at) => {
  if (at.isContentEditable || ["TEXTAREA", "SELECT"].includes(at.tagName)) return true;
  return at.tagName === "INPUT" && !LEAVES.includes(at.type) && !closedList(at);
};
// What arrows move by themselves; in a group that the mouse was in last they are free.
const movedByArrows = (at, key) => {
  // The page draws this slider anew with every step, so that it would miss the next arrow.
  if (at.closest(".st-key-header_slider")) return false;
  const own = "input[type=range], canvas, [role=slider], [role=menu], [role=listbox], [role=grid]";
  if (at.closest(own) || (key.startsWith("Arrow") && at.closest(".stage"))) return true;
  return !window.memrlByMouse && at.closest("[role=radiogroup], [role=tablist]");
};
// What is typed after "/" until the list of questions is open, or null. The list may not even be there yet.
const QUESTIONS = ".st-key-question [role=combobox] ~ button";
const PATIENCE = 20000;
let typed = null;
function search() {
  typed = "";
  const end = performance.now() + PATIENCE;
  let clicked;
  const look = () => {
    if (typed === null) return;
    const button = document.querySelector(QUESTIONS);
    const field = button?.parentElement.querySelector("[role=combobox]");
    if (field === document.activeElement && field?.getAttribute("aria-expanded") === "true") {
      const value = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
      if (typed) {
        value.set.call(field, typed);
        field.dispatchEvent(new Event("input", { bubbles: true }));
      }
      typed = null;
    } else if (performance.now() > end) typed = null;
    else {
      // Once each time that Streamlit draws the field anew: a second click closes the list.
      if (field && field !== clicked) button.click();
      clicked = field ?? clicked;
      requestAnimationFrame(look);
    }
  };
  look();
}
const running = () => document.querySelector("[data-test-script-state]")?.dataset.testScriptState === "running";

export default function ({ setTriggerValue, setStateValue }) {
  const counted = (event, stands) => {
    const button = document.querySelector(stands);
    event.preventDefault();
    event.stopImmediatePropagation();
    if (event.repeat && (button.disabled || running())) return;
    // A phase that still runs disables its button for a moment: who presses quickly means the phases after it too.
    whenever(() => !document.querySelector(stands)?.disabled, () => count(event));
  };
  const whenever = (ready, act, end = performance.now() + SOON) => {
    if (ready()) act();
    else if (performance.now() < end) setTimeout(whenever, 30, ready, act, end);
  };
  const count = (event) => {
    const all = (window.memrlPresses ??= { of: crypto.getRandomValues(new Uint32Array(1))[0], count: 0, last: [] });
    all.count += 1;
    all.last = [...all.last, COUNTED[event.key] ?? COUNTED[event.key.toLowerCase()]].slice(-KEPT);
    setStateValue("presses", { ...all });
  };
  const first = (event) => {
    const at = event.target;
    if (!(at instanceof Element) || event.ctrlKey || event.metaKey || event.altKey) return;
    // What covers the page has its own keys.
    if (document.querySelector("[data-testid=stDialog]")) return;
    if (typed !== null && (event.key.length === 1 || event.key === "Backspace")) {
      typed = event.key === "Backspace" ? typed.slice(0, -1) : typed + event.key;
      event.preventDefault();
      return event.stopImmediatePropagation();
    }
    // Arrows choose in the stage's short lists; what rates and undoes is heard there too.
    const list = ONCE.test(event.key) && at.closest(".stage select");
    if (typing(at) && !list) return;
    if (event.repeat && ONCE.test(event.key)) return event.stopImmediatePropagation();
    if ((event.shiftKey ? /^Digit[1-7]$/.test(event.code) : RATES.test(event.key)) && window.memrlStage?.key(event)) {
      event.preventDefault();
      return event.stopImmediatePropagation();
    }
    const over = "[role=dialog], [data-testid=stPopoverBody], [aria-expanded=true][role=combobox]";
    if (event.key === "Escape" && !document.querySelector(over) && window.memrlStage?.escape?.()) {
      event.preventDefault();
      return event.stopImmediatePropagation();
    }
    const name = COUNTED[event.key] ?? COUNTED[event.key.toLowerCase()];
    const moves = event.key.length > 1;
    if (name && !(moves && movedByArrows(at, event.key))) {
      if (moves && window.memrlStage?.move(name)) {
        event.preventDefault();
        return event.stopImmediatePropagation();
      }
      const stands = moves ? ".st-key-header_step" : `.st-key-${name} button`;
      if (document.querySelector(stands)) return counted(event, stands);
    }
    // Streamlit hears no key in an input, be it a slider, and a letter would open the list.
    const letter = event.key.length === 1 && event.key !== " " && !event.shiftKey;
    if (closedList(at) ? !LISTS_OWN.test(event.key) : list || (at.tagName === "INPUT" && letter)) {
      event.preventDefault();
      event.stopImmediatePropagation();
      const { key, code, keyCode, which, shiftKey } = event;
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key, code, keyCode, which, shiftKey, bubbles: true }));
    }
  };
  const listen = (event) => {
    const at = event.target;
    const types = typing(at);
    // After Enter the keys rate again; Streamlit would leave the cursor in the field.
    const left = ".st-key-reason_box, .st-key-label_why, .st-key-rewards_name, .st-key-header_step";
    if (types && event.key === "Enter" && at.closest(left)) at.blur();
    if (types || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("[data-testid=stDialog]")) return;
    if (event.key === "m" || event.key === "M") window.memrlStage?.act(event);
    if (event.key === "?") setTriggerValue("asked", true);
    if (event.key === "/" && location.pathname.endsWith("/decision")) { event.preventDefault(); search(); }
    if (event.key === "e" || event.key === "E") {
      const field = document.querySelector(".st-key-reason_box input, .st-key-label_why input, .stage-reason:enabled");
      if (field) { event.preventDefault(); field.focus(); }
    }
  };
  const pointed = () => { window.memrlByMouse = true; typed = null; };
  const tabbed = (event) => { if (event.key === "Tab") window.memrlByMouse = false; };
  // Streamlit ends only the last of this function's runs, and a change of theme runs it again.
  window.memrlDeaf?.();
  // Before Streamlit, which listens on the document.
  window.addEventListener("keydown", first, true);
  window.addEventListener("keydown", tabbed, true);
  window.addEventListener("pointerdown", pointed, true);
  document.addEventListener("keydown", listen);
  document.body.dataset.keys = "heard";
  const deaf = () => {
    window.removeEventListener("keydown", first, true);
    window.removeEventListener("keydown", tabbed, true);
    window.removeEventListener("pointerdown", pointed, true);
    document.removeEventListener("keydown", listen);
    if (window.memrlDeaf === deaf) delete document.body.dataset.keys;
  };
  window.memrlDeaf = deaf;
  return deaf;
}
