// Two agents at one help desk: a map of each memory, on which q is the height, the shares right, and every message.

const RISE = 700;
const KINDS = { right: "right by the rules now", wrong: "wrong by the rules now", failure: "a failure: shows no team" };
const SHAPES = { right: "M0 -5A5 5 0 1 1 0 5A5 5 0 1 1 0 -5Z", wrong: "M0 -6L6 5L-6 5Z", failure: "M-3.5 -3.5H3.5V3.5H-3.5Z" };
const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, parent, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}
function el(tag, name, parent, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}
const percent = (share) => `${Math.round(100 * share)} %`;
const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(3);
const rightOf = (outcomes) => [...outcomes].filter((one) => one === "1").length;

// The share right of the last messages, at each message.
function moving(outcomes, window) {
  const shares = [];
  let right = 0, judged = 0;
  for (let n = 0; n < outcomes.length; n += 1) {
    const [now, gone] = [outcomes[n], n >= window ? outcomes[n - window] : "-"];
    right += (now === "1") - (gone === "1");
    judged += (now !== "-") - (gone !== "-");
    shares.push(judged ? right / judged : null);
  }
  return shares;
}

class Side {
  constructor(parent, name) {
    this.box = el("section", "race-side", parent);
    this.box.dataset.agent = name;
    const head = el("div", "race-head", this.box);
    this.label = el("b", "", head);
    this.count = el("span", "race-count", head);
    this.error = el("p", "race-error", this.box);
    this.plot = svg("svg", { class: "race-map", role: "img" }, this.box);
    this.back = svg("g", {}, this.plot);
    this.dots = new Map();
  }

  draw(side, data) {
    this.box.setAttribute("aria-label", side.label);
    this.label.textContent = side.label;
    const right = rightOf(side.outcomes), of = side.outcomes.length;
    this.count.textContent = of ? `${right} of ${of} right · ${percent(right / of)}` : "no message yet";
    this.error.textContent = side.error;
    this.error.hidden = !side.error;
    const width = this.box.clientWidth || 400, height = 250, left = 30, bottom = 30, top = 8;
    this.plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.plot.style.height = `${height}px`;
    const y = (q) => top + ((1 - q) / 2) * (height - top - bottom);
    const column = (width - left - 8) / data.topics.length;
    this.back.replaceChildren();
    for (const q of [-1, 0, 1]) {
      svg("line", { x1: left, x2: width, y1: y(q), y2: y(q), class: "race-rule" }, this.back);
      svg("text", { x: left - 6, y: y(q) + 4, "text-anchor": "end" }, this.back, q > 0 ? "+1" : q < 0 ? "−1" : "0");
    }
    svg("text", { x: 4, y: y(0.5) }, this.back, "q");
    data.topics.forEach((topic, n) => svg("text", { x: left + column * (n + 0.5), y: height - 10, "text-anchor": "middle" }, this.back, topic));
    const seen = new Set(), many = Array(data.topics.length).fill(0);
    for (const [id, label, topic, kind, q, visits, given] of side.memories) {
      if (topic === null) continue;
      seen.add(id);
      const place = many[topic]++;
      let dot = this.dots.get(id);
      if (!dot) {
        dot = svg("g", { class: "race-dot", "data-memory": id }, this.plot);
        dot.shape = svg("path", {}, dot);
        dot.title = svg("title", {}, dot);
        this.dots.set(id, dot);
      }
      // The handbook's entries stand side by side, what came later behind them, in the order in which it came.
      const x = left + column * (topic + 0.12 + 0.76 * (given ? ((place % 6) + 0.5) / 6 : ((place * 0.381966) % 1)));
      dot.style.transform = `translate(${x.toFixed(1)}px, ${y(Math.max(-1, Math.min(1, q))).toFixed(1)}px)`;
      dot.setAttribute("data-q", String(q));
      dot.setAttribute("data-kind", kind);
      dot.setAttribute("data-given", String(given));
      dot.shape.setAttribute("d", SHAPES[kind]);
      dot.title.textContent = `${label} · ${KINDS[kind]} · q ${signed(q)}, moved ${visits} times`;
    }
    for (const [id, dot] of this.dots) if (!seen.has(id)) { dot.remove(); this.dots.delete(id); }
    const given = side.memories.filter((one) => one[6]);
    const low = (kind) => given.filter((one) => one[3] === kind && one[4] < 0).length;
    const all = (kind) => given.filter((one) => one[3] === kind).length;
    this.plot.setAttribute("aria-label", `Memories by topic and q. Of the handbook ${low("wrong")} of ${all("wrong")} wrong entries and ${low("right")} of ${all("right")} right ones have a q below 0.`);
  }
}

class Race {
  constructor(root) {
    this.root = root;
    const maps = el("div", "race-maps", root);
    this.sides = [new Side(maps, "left"), new Side(maps, "right")];
    const legend = el("p", "race-legend", root);
    for (const [kind, words] of Object.entries(KINDS)) {
      const mark = svg("svg", { viewBox: "-7 -7 14 14", class: "race-mark race-dot", "data-kind": kind }, legend);
      svg("path", { d: SHAPES[kind] }, mark);
      el("span", "", legend, words);
    }
    el("span", "", legend, "large: of the handbook · height: q");
    this.curves = svg("svg", { class: "race-curves", role: "img" }, root);
    this.strip = svg("svg", { class: "race-strip", role: "group", "aria-label": "Every message; a click opens both decisions in Compare" }, root);
    this.strip.addEventListener("click", (event) => {
      const step = event.target.dataset?.step;
      if (step) this.open(Number(step));
    });
    this.strip.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !event.target.dataset?.step) return;
      this.open(Number(event.target.dataset.step));
    });
  }

  draw(data) {
    this.data = data;
    const both = Math.min(...data.sides.map((side) => side.outcomes.length));
    this.root.dataset.messages = String(both);
    data.sides.forEach((side, n) => this.sides[n].draw(side, data));
    const width = this.root.clientWidth || 900, left = 44, height = 170, bottom = 26, top = 10;
    const x = (n) => left + ((width - left - 90) * n) / Math.max(1, data.total);
    const y = (share) => top + (1 - share) * (height - top - bottom);
    this.curves.replaceChildren();
    this.curves.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.curves.style.height = `${height}px`;
    for (const share of [0, 0.5, 1]) {
      svg("line", { x1: left, x2: x(data.total), y1: y(share), y2: y(share), class: "race-rule" }, this.curves);
      svg("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, this.curves, percent(share));
    }
    svg("line", { x1: left, x2: x(data.total), y1: y(data.floor), y2: y(data.floor), class: "race-floor" }, this.curves);
    svg("text", { x: x(data.total) + 4, y: y(data.floor) + 4 }, this.curves, "guessing");
    for (const n of [0, 0.25, 0.5, 0.75, 1]) svg("text", { x: x(n * data.total), y: height - 8, "text-anchor": "middle" }, this.curves, String(Math.round(n * data.total)));
    for (const step of data.shifts) {
      svg("line", { x1: x(step - 1), x2: x(step - 1), y1: top, y2: height - bottom, class: "race-shift" }, this.curves);
      svg("text", { x: x(step - 1) + 4, y: top + 9 }, this.curves, "rules change");
    }
    const ends = [];
    data.sides.forEach((side, n) => {
      const shares = moving(side.outcomes, data.window);
      const path = shares.map((share, at) => (share === null ? "" : `${x(at + 1).toFixed(1)} ${y(share).toFixed(1)}`)).filter(Boolean);
      if (!path.length) return;
      svg("path", { d: `M${path.join("L")}`, class: "race-line", "data-side": n }, this.curves);
      ends.push([x(shares.length) + 5, y(shares.at(-1)), n, `${side.label} ${percent(shares.at(-1))}`]);
    });
    if (ends.length === 2 && Math.abs(ends[0][1] - ends[1][1]) < 13) {
      const upper = ends[0][1] <= ends[1][1] ? 0 : 1, middle = (ends[0][1] + ends[1][1]) / 2;
      ends[upper][1] = middle - 7;
      ends[1 - upper][1] = middle + 7;
    }
    for (const [at, height_, n, words] of ends) svg("text", { x: at, y: height_ + 4, "data-side": n, class: "race-end" }, this.curves, words);
    this.curves.setAttribute("aria-label", `Share right of the last ${data.window} messages. ${ends.map((one) => one[3]).join(", ")}.`);
    this.drawStrip(x, width, left);
  }

  drawStrip(x, width, left) {
    const { data } = this, row = 16;
    this.strip.setAttribute("viewBox", `0 0 ${width} ${2 * row + 4}`);
    this.strip.style.height = `${2 * row + 4}px`;
    const cell = Math.max(1, x(1) - x(0) - (x(1) - x(0) > 4 ? 1 : 0));
    this.cells ??= [];
    data.sides.forEach((side, n) => {
      this.cells[n] ??= [];
      const known = this.cells[n];
      while (known.length > side.outcomes.length) known.pop().remove();
      [...side.outcomes].forEach((outcome, at) => {
        known[at] ??= svg("rect", { "data-step": at + 1, tabindex: -1, role: "button" }, this.strip);
        const mark = known[at], word = outcome === "1" ? "right" : outcome === "0" ? "wrong" : "not judged";
        for (const [name, value] of Object.entries({ x: x(at).toFixed(2), width: cell.toFixed(2), y: n * (row + 4), height: row, "data-outcome": outcome, "data-side": n, "aria-label": `${side.label}, message ${at + 1}: ${word}` })) mark.setAttribute(name, value);
      });
    });
    const first = this.cells[0][0];
    if (first) first.setAttribute("tabindex", 0);
  }
}

export default function ({ parentElement, data, setTriggerValue }) {
  const root = parentElement.querySelector(".race");
  const race = (root.race ??= new Race(root));
  race.open = (step) => setTriggerValue("message", step);
  race.draw(data);
  root.sized ??= new ResizeObserver(() => root.race.data && root.race.draw(root.race.data));
  root.sized.observe(root);
}
