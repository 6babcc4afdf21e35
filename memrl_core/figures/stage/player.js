// The player of a run: the stage, a row to move through its steps, and the address that says where one is.

const PAUSE_BETWEEN_STEPS = 900;
const FOOTER = 26;

async function unpacked() {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function openPlayer(data) {
  const main = document.getElementById("player");
  main.replaceChildren();
  const head = el("header", "player-head", main);
  const title = el("h1", "", head, data.run.id);
  el("small", "", title, [data.run.bank, data.run.environment, data.run.policy, data.run.simulated ? "simulated model" : data.run.model].filter(Boolean).join(" · "));
  const button = (text, name, act) => {
    const made = set(el("button", "", head, text), { type: "button", title: name, "aria-label": name });
    made.addEventListener("click", act);
    return made;
  };
  const steps = data.steps;
  const first = button("|◀", "First step (Home)", () => stage.show(0, stage.phase));
  const back = button("◀", "Step before (Shift+←)", () => stage.show(stage.index - 1));
  const number = set(el("input", "player-number", head), { type: "number", min: steps[0].step, max: steps.at(-1).step, "aria-label": "Step" });
  el("span", "player-of", head, `of ${steps.at(-1).step.toLocaleString("en")}`);
  const on = button("▶", "Next step (Shift+→)", () => stage.show(stage.index + 1));
  const last = button("▶|", "Last step (End)", () => stage.show(steps.length - 1, stage.phase));
  const run = button("Play the run", "Play this step and those that follow (P)", () => playRun(!running));
  const differs = set(el("span", "player-differs", head), { "aria-live": "polite" });
  const bar = el("div", "", main);
  const place = el("div", "", main);
  el("p", "player-note", main, "1–7 phase · ← → phase by phase · Shift+← → step · space play · P play the run · M map alone · ↑ ↓ walk the pool · Enter or click pin · Esc close · / search");

  let running = false;
  const goTo = (step) => {
    const index = stage.model.indexOf(step);
    if (index >= 0) stage.show(index);
  };
  const strip = data.strip && new RunStrip(bar, { step: goTo, film: () => stage.showFilm(data.film, data.strip, goTo) });
  const stage = mountStage(place, data, {
    height: () => window.innerHeight - place.offsetTop - FOOTER - 8,
    onStep: () => shown(),
    onPhase: () => addressed(),
    onToggle: () => addressed(),
    onPin: () => addressed(),
    onLook: () => addressed(),
    onTried: () => {
      addressed();
      countDiffering();
    },
    onEnd: () => {
      if (!running) return false;
      if (stage.index + 1 >= steps.length) {
        playRun(false);
        return false;
      }
      setTimeout(() => {
        if (!running) return;
        stage.show(stage.index + 1, 1);
        stage.play();
      }, PAUSE_BETWEEN_STEPS);
      return false;
    },
  });

  function playRun(wanted) {
    running = wanted;
    set(run, { "aria-pressed": running });
    if (running) stage.play();
    else stage.pause();
  }

  function shown() {
    number.value = stage.step.step;
    first.disabled = back.disabled = stage.index === 0;
    last.disabled = on.disabled = stage.index === steps.length - 1;
    strip?.update(data.strip, stage.step.step);
    addressed();
  }

  function countDiffering() {
    const { tried } = stage;
    const symbols = [["weight", "λ"], ["k1", "k1"], ["k2", "k2"], ["delta", "δ"]].filter(([name]) => tried[name] !== null).map(([, symbol]) => symbol);
    if (!symbols.length) {
      differs.textContent = "";
      return;
    }
    const slides = steps.filter((step) => step.decision?.slides);
    const others = slides.filter((step) => {
      const chosen = new Set(step.decision.selected);
      const now = selectedAt(decidedAgain(step, tried), tried.weight);
      return now.length !== chosen.size || now.some((n) => !chosen.has(n));
    });
    differs.textContent = `${symbols.length > 1 ? "these" : "this"} ${symbols.join(", ")} ${symbols.length > 1 ? "select" : "selects"} others in ${others.length} of ${slides.length} steps`;
  }

  let asked = 0;
  function addressed() {
    if (!stage) return;
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(() => {
      const at = new URLSearchParams({ step: stage.step.step, phase: LAST, ...stage.look });
      if (stage.pinnedId) at.set("memory", stage.pinnedId);
      if (location.hash !== `#${at}`) history.replaceState(null, "", `#${at}`);
    });
  }

  // Where nothing else is asked for: the first step that was solved although utility overruled similarity.
  function tellingStep() {
    const found = steps.findIndex(({ decision, candidates, reward }) => {
      if (!decision?.slides || reward?.outcome !== "success") return false;
      const nearest = candidates.slice(0, decision.selected.length).map((one) => one.memory);
      return decision.selected.some((n) => !nearest.includes(n));
    });
    return Math.max(0, found);
  }

  function followAddress() {
    // Opened without an address, the file shows what was looked at when it was saved.
    const at = new URLSearchParams(location.hash.slice(1) || main.dataset.at);
    const index = stage.model.indexOf(Number(at.get("step")));
    stage.show(index < 0 ? tellingStep() : index);
    stage.lookAt(Object.fromEntries(at));
    const memory = stage.model.numbers.get(at.get("memory")) ?? null;
    if (memory !== stage.pinned) stage.pin(memory);
    countDiffering();
    shown();
  }

  number.addEventListener("change", () => {
    const index = stage.model.indexOf(clamp(Math.round(Number(number.value)) || steps[0].step, steps[0].step, steps.at(-1).step));
    if (index >= 0) stage.show(index);
    number.value = stage.step.step;
  });
  window.addEventListener("resize", () => {
    stage.relayout();
    stage.redraw();
  });
  window.addEventListener("hashchange", followAddress);
  document.addEventListener("keydown", (event) => {
    const at = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (["INPUT", "SELECT", "TEXTAREA"].includes(at.tagName) && at.type !== "range") return;
    if (event.key === "Home") stage.show(0, stage.phase);
    else if (event.key === "End") stage.show(steps.length - 1, stage.phase);
    else if (event.key === "/") stage.search.focus();
    else if (event.key === "p" || event.key === "P") playRun(!running);
    else if (stage.root.contains(at) || !stage.act(event, at)) return;
    event.preventDefault();
  });
  followAddress();
  window.player = stage;
}

try {
  openPlayer(await unpacked());
} catch (error) {
  const fault = document.getElementById("player");
  fault.replaceChildren();
  el("p", "player-fault", fault, `This file could not be played: ${error.message}. It may be cut short, or this browser may be older than 2023; make it again with memrl player, or open it in a newer browser.`);
}
