
// --- the stage on a page of Streamlit ---------------------------------------------------------------------------------

const REPORT_AFTER = 350;
const NEAR_THE_EDGE = 3;
// A replay that plays.
const RUN_SPEED = 2.5;
const BETWEEN_STEPS = 700;

// Data as the stage takes it, of the table that came once and of what has come since.
function whole(table, update) {
  const { first, memories: more } = update;
  const known = new Map(table.memories.intents.map(([text, family], at) => [`${family}\n${text}`, at]));
  const intents = [...table.memories.intents];
  const numbers = more.intents.map(([text, family]) => {
    const key = `${family}\n${text}`;
    if (!known.has(key)) known.set(key, intents.push([text, family]) - 1);
    return known.get(key);
  });
  const memories = { ...more, intents };
  for (const name of ["id", "label", "x", "y", "outcome", "step", "run", "about"]) {
    memories[name] = [...table.memories[name].slice(0, first), ...more[name]];
  }
  memories.intent = [...table.memories.intent.slice(0, first), ...more.intent.map((at) => (at === null ? null : numbers[at]))];
  const before = [...table.before.slice(0, first), ...more.id.map(() => null)];
  for (const [n, q, visits] of update.jump) before[n] = q === null ? null : [q, visits];
  return { ...update, memories, before };
}

function arrived(key, wanted) {
  return new Promise((resolve) => {
    const look = () => {
      if (!wanted()) return;
      const table = window.memrlStageTables?.[key];
      if (table) resolve(table);
      else setTimeout(look, 15);
    };
    look();
  });
}

// What is typed is saved by the way: a press need not wait for it.
const FIELDS = ["name", "reason"];
const HAS_REASON = ["rate", "reason"];
window.memrlStageParts = { MemoryMap, Model, el, themeOf };

// How long an answer to an act of the hand may take before it counts as lost.
const PATIENCE = 10000;
// Pixels that stay free below the stage, of a low window fewer.
const [BELOW, BELOW_LOW, LOW_WINDOW] = [32, 26, 800];
const LOOK_EVERY = 250;
const NO_ANSWER = "The program did not answer, so nothing moved. What you gave may not be saved: reload the page to see what stands.";
const SAVES = ".st-key-share_run button";
const REST_EVERY = 50;
const running = () => document.querySelector("[data-test-script-state]")?.dataset.testScriptState === "running";
const connected = () => (document.querySelector("[data-test-connection-state]")?.dataset.testConnectionState ?? "CONNECTED") === "CONNECTED";

export default function ({ parentElement, data, setStateValue, setTriggerValue }) {
  const host = parentElement.querySelector(".stage-host");
  const own = (host.own ??= { count: 0, stage: null });
  own.turn = (own.turn ?? 0) + 1;
  const turn = own.turn;
  own.send = (went) => setStateValue("went", went);
  own.ask = (what) => setTriggerValue("asked", what);
  // Where the stage begins on a page that is not scrolled.
  own.room = () => Math.round(window.innerHeight - own.top() - (window.innerHeight < LOW_WINDOW ? BELOW_LOW : BELOW));
  own.top = () => host.getBoundingClientRect().top + (host.closest("[data-testid=stMain]")?.scrollTop ?? 0);
  own.sendActs = () => setStateValue("acts", { of: own.of, count: own.acted, last: own.acts });
  own.acted ??= 0;
  own.acts ??= [];
  // What the hand asks for stays with the browser until it is answered; without an answer it is dropped, so that it does
  // not come to pass when the program is back.
  own.act = (act) => {
    own.acts.push({ ...act, n: (own.acted += 1) });
    own.sendActs();
    const n = own.acted;
    const end = performance.now() + PATIENCE;
    const look = () => {
      if (!own.acts.some((one) => one.n === n) || !host.isConnected) return;
      if (connected() && performance.now() < end) return void setTimeout(look, LOOK_EVERY);
      own.acts = own.acts.filter((one) => one.n !== n);
      own.sendActs();
      own.stage.hand.answered(NO_ANSWER);
    };
    setTimeout(look, LOOK_EVERY);
  };
  own.answered = (done) => {
    if (done?.of !== own.of || !own.acts.length) return;
    const answered = own.acts.filter((one) => one.n <= done.count);
    own.acts = own.acts.filter((one) => one.n > done.count);
    const saved = answered.some((one) => HAS_REASON.includes(one.do));
    if (answered.length) own.stage.hand.answered(done.error, saved, own.acts.some((one) => !FIELDS.includes(one.do)));
  };
  // What is open of a phase is drawn by the page and laid over a panel that it is not about.
  own.open = (phase) => {
    own.opened = own.opened === phase ? null : phase;
    setStateValue("drawer", own.opened);
    own.place();
  };
  own.place = () => {
    const { root, ranksBox, mapBox } = own.stage;
    const panel = [2, 3].includes(own.opened) ? mapBox.closest(".stage-panel") : ranksBox;
    const box = panel.getBoundingClientRect();
    const style = document.documentElement.style;
    const set = { left: own.opened ? box.left : -9999, top: box.top, width: box.width, height: box.height };
    for (const [name, value] of Object.entries(set)) style.setProperty(`--drawer-${name}`, `${Math.round(value)}px`);
  };
  own.sendLook = (look) => setStateValue("look", look);
  // What the address says of the view follows when a person rests.
  own.looked = () => {
    clearTimeout(own.lookClock);
    own.lookClock = setTimeout(() => {
      const { look } = own.stage;
      if (host.isConnected && JSON.stringify(look) !== JSON.stringify(own.look)) own.sendLook((own.look = look));
    }, REPORT_AFTER);
  };
  // What the page below has to follow: reported when a person rests, or before the steps at hand run out.
  own.report = (at_once) => {
    own.count += 1;
    clearTimeout(own.clock);
    const went = { count: own.count, of: own.of, step: own.wanted ?? own.stage.step.step, memory: own.stage.pinnedId ?? null, playing: Boolean(own.playing), moves: own.moves };
    own.clock = setTimeout(() => own.send(went), at_once ? 0 : REPORT_AFTER);
  };
  // Whether the page has taken in what the stage shows and what was typed.
  own.rests = () => {
    const heard = !own.acts.length && (own.heard ?? 0) >= own.count;
    return heard && !running() && JSON.stringify(own.stage.look) === JSON.stringify(own.lookHeard);
  };
  // A file is made of what the page knows, and not at all while the page runs again: a press on its button waits.
  own.saves = (event) => {
    if (own.pressing || !own.stage || !host.isConnected || !event.target.closest?.(SAVES)) return;
    own.stage.hand.tellReason();
    if (own.rests()) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const end = performance.now() + PATIENCE;
    const look = () => {
      if (!host.isConnected) return;
      if (!own.rests() && performance.now() < end) return void (own.saveClock = setTimeout(look, REST_EVERY));
      own.pressing = true;
      document.querySelector(SAVES)?.click();
      own.pressing = false;
    };
    clearTimeout(own.saveClock);
    look();
  };
  // To a step that is not at hand; each key counts from the one that was asked for last. Whether there is one.
  own.want = (by) => {
    const to = (own.wanted ?? own.stage.step.step) + by;
    if (to < own.ends[0] || to > own.ends[1]) return false;
    own.wanted = to;
    own.report(true);
    return true;
  };
  // To any step of the run, where it is not at hand by way of the server; amid a drag that waits until the hand rests.
  own.goTo = (step, settled) => {
    own.stop();
    const index = own.stage.model.indexOf(step);
    if (index >= 0 && own.wanted == null) own.stage.show(index);
    else if (step >= own.ends[0] && step <= own.ends[1]) {
      own.wanted = step;
      own.report(settled);
    }
  };
  // The film of the run as it is by now, once it has come.
  own.playFilm = () => {
    own.filmAsked = false;
    own.stage.showFilm(window.memrlFilms[own.filmKey], own.strip.data, (step) => own.goTo(step, true));
  };
  // The step that is shown, from its beginning; `onEnd` goes on to the next.
  own.playStep = () => {
    own.stage.speed = RUN_SPEED;
    own.stage.t = 0;
    own.stage.play();
  };
  own.stop = () => {
    if (!own.playing) return;
    own.playing = false;
    own.awaited = null;
    own.stage.speed = 1;
  };
  own.playNext = () => {
    if (!own.playing || !host.isConnected) return;
    own.advancing = true;
    // What is not at hand is played when it has come.
    if (own.stage.show(own.stage.index + 1, 1)) own.playStep();
    else if (own.want(1)) own.awaited = own.wanted;
    else {
      own.stop();
      own.report(true);
    }
    own.advancing = false;
  };
  arrived(data.key, () => host.isConnected && own.turn === turn).then((table) => {
    const update = whole(table, data);
    const { stage } = own;
    own.replays = data.replays;
    own.moves = data.moved_by_page;
    own.hand = data.hand;
    own.use = data.use;
    own.bank = data.bank;
    own.ends = [data.first_step, data.newest];
    own.asked = false;
    own.heard = data.heard?.of === own.of ? data.heard?.count : 0;
    own.filmKey = data.film;
    own.strip ??= new RunStrip(host, {
      step: own.goTo,
      list: (first, last) => own.ask(["list", [String(first), String(last)]]),
      ghost: (run, step) => own.ask(["run", [run, String(step)]]),
      film: () => {
        if (window.memrlFilms?.[own.filmKey]) return own.playFilm();
        own.filmAsked = true;
        own.ask(["film", ""]);
      },
    });
    // Above the host, whose height is the stage's.
    if (own.strip.root.parentElement === host) host.before(own.strip.root);
    // What comes a moment later has its room already: the stage below it stays where it is.
    own.strip.root.style.visibility = data.strip ? "" : "hidden";
    if (!stage) {
      own.of = crypto.randomUUID?.() ?? String(Math.random());
      own.quiet = true;
      own.stage = mountStage(host, update, {
        actions: data.actions,
        selecting: data.selecting,
        digitsRate: true,
        hand: () => own.hand,
        height: () => own.room(),
        onLayout: () => own.stage && own.place(),
        onOpen: (phase) => own.open(phase),
        onClose: () => {
          if (!own.opened) return false;
          own.open(own.opened);
          return true;
        },
        onHand: (act) => {
          if (act.do === "name") document.cookie = `memrl_person=${encodeURIComponent(act.name)}; path=/; max-age=31536000; SameSite=Strict`;
          own.act(act);
        },
        onAct: (name, id) => own.ask([name, id]),
        onStep: (step, index) => {
          own.strip.show(step);
          if (own.quiet) return;
          own.looked();
          if (!own.advancing) own.stop();
          const { steps } = own.stage.model;
          own.report(Math.min(index, steps.length - 1 - index) < NEAR_THE_EDGE);
        },
        onEdge: (by) => {
          own.stop();
          own.want(by);
        },
        onEnd: () => {
          if (own.playing) setTimeout(own.playNext, BETWEEN_STEPS);
          return false;
        },
        onPhase: () => own.looked(),
        onTried: () => own.looked(),
        use: () => own.use,
        onUse: (chosen) => own.ask(["use", chosen]),
        onLook: () => own.looked(),
        link: () => {
          const { run, step, pinnedId, look } = own.stage;
          const at = new URLSearchParams({ bank: own.bank, run: run.id, step: step.step, ...(pinnedId ? { memory: pinnedId } : {}), ...look });
          return `${location.origin}${location.pathname}?${at}`;
        },
        onToggle: (plays) => {
          own.looked();
          if (plays || !own.playing) return;
          own.stop();
          own.report(true);
        },
        onPin: () => own.quiet || own.report(true),
      });
      own.stage.show(Math.max(0, own.stage.model.indexOf(data.at)));
      own.stage.lookAt(data.look);
      own.quiet = false;
    } else {
      own.quiet = true;
      stage.callbacks.actions = data.actions;
      // A person may be further by now than what the server has heard.
      const follows = data.heard?.of !== own.of ? own.count === 0 || !own.replays : data.heard.count >= own.count;
      const goal = own.wanted ?? (follows ? data.at : stage.step.step);
      if (follows || update.steps.some((step) => step.step === own.wanted)) own.wanted = null;
      // A new step plays from its beginning, not the one that a person comes back to.
      const begins = !data.replays && goal !== stage.step.step && goal > (own.reached ?? 0);
      let index = update.steps.findIndex((step) => step.step === goal);
      for (const other of [stage.step.step, data.at]) if (index < 0) index = update.steps.findIndex((step) => step.step === other);
      stage.update(update, index);
      if (begins) {
        stage.t = 0;
        stage.goTo(stage.most());
      }
      own.quiet = false;
    }
    if (data.strip) own.strip.update(data.strip, own.wanted ?? own.stage.step.step, data.newest);
    if (own.filmAsked && window.memrlFilms?.[data.film]) own.playFilm();
    own.opened = data.drawer;
    own.place();
    own.answered(data.hand.done);
    // What plays here goes on by itself; the server only says when to begin and to stop.
    const heard = own.count === 0 || (data.heard?.of === own.of && data.heard.count >= own.count);
    if (own.playing ? own.awaited === own.stage.step.step : data.playing && heard) {
      own.playing = true;
      own.awaited = null;
      own.playStep();
    } else if (own.playing && heard && !data.playing) {
      own.stop();
      own.stage.pause();
    }
    own.reached = Math.max(own.reached ?? 0, data.newest);
    own.quiet = true;
    own.look = own.lookHeard = data.look;
    own.looked();
    const pinned = own.stage.pinnedId ?? null;
    if (pinned !== data.memory && (data.heard?.of !== own.of || data.heard.count >= own.count)) {
      const n = data.memory === null ? null : (own.stage.model.numbers.get(data.memory) ?? null);
      if (n !== own.stage.pinned) own.stage.pin(n);
    }
    own.quiet = false;
    host.dataset.drawn = String(Number(host.dataset.drawn || 0) + 1);
  });
  // Back and next in a replay need no server.
  window.memrlStage = {
    escape: () => Boolean(own.stage && host.isConnected && own.stage.act({ key: "Escape" })),
    // Whether a key gives a reward or a label here, or goes to a phase.
    key: (event) => {
      if (!own.stage || !host.isConnected) return false;
      if (/^l$/i.test(event.key)) return own.stage.labelKey();
      if (/^a$/i.test(event.key)) return own.stage.useKey();
      return event.shiftKey ? /^Digit[1-7]$/.test(event.code) && own.stage.act(event) : own.stage.hand.key(event.key);
    },
    act: (event) => host.isConnected && own.stage?.act(event),
    playFilm: () => host.isConnected && own.filmAsked && own.playFilm(),
    showWaiting: (...now) => host.isConnected && own.stage?.showWaiting(...now),
    move(name) {
      const by = { move_Back: -1, move_Next: 1 }[name];
      if (!own.stage || !own.replays || !host.isConnected) return false;
      if (!by) {
        // The server goes there, and what is pressed until it has is counted from there.
        clearTimeout(own.clock);
        own.count = own.heard ?? 0;
        own.asked = true;
        own.wanted = null;
      }
      own.stop();
      if (own.asked) return false;
      const to = own.stage.index + by;
      const pending = own.wanted != null;
      // At the end of the run the server knows what comes.
      if (pending || !own.stage.model.steps[to]) return own.want(by) || pending;
      own.stage.show(to);
      return true;
    },
  };
  if (!own.follows) {
    // What is drawn above the stage later, or taken away, leaves it another height.
    own.follows = () => {
      if (!own.stage || !host.isConnected || own.fits === own.room()) return;
      own.fits = own.room();
      own.stage.relayout();
      own.stage.redraw();
    };
    own.above = new ResizeObserver(own.follows);
    own.above.observe(host.closest(".stMainBlockContainer") ?? document.body);
    own.scrolls = () => own.stage && host.isConnected && own.place();
    window.addEventListener("resize", own.follows);
    document.addEventListener("scroll", own.scrolls, true);
    document.addEventListener("click", own.saves, true);
  }
  return () => {
    setTimeout(() => {
      if (host.isConnected) return;
      own.above.disconnect();
      window.removeEventListener("resize", own.follows);
      document.removeEventListener("scroll", own.scrolls, true);
      document.removeEventListener("click", own.saves, true);
      own.stage?.destroy();
      own.strip?.destroy();
      own.strip?.root.remove();
      clearTimeout(own.clock);
      clearTimeout(own.lookClock);
    });
  };
}
