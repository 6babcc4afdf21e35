// The pictures of the playground: the memory as a map, the strip of a run over time, the plane. Each paints a canvas.

// Of the shipped tasks; `TEXTS` are those of a person's own, which have no other name.
let FAMILY_NAMES = ["Kitchen", "Garden", "Garage", "Office", "Attic", "Cellar", "Studio", "Library"], TEXTS = null;
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const placeInFamily = (task) => task - FIRST[familyOf(task)];
const tasksOf = (family) => ALL.filter((task) => familyOf(task) === family);
const FAMILY_COLOURS = [["blue", "#4c8fd6"], ["orange", "#e08214"], ["green", "#1b9e77"], ["pink", "#c35f9b"], ["brown", "#8c6d31"]];
const WAY_NAMES = ["Amber", "Birch", "Coral", "Denim"];
const taskName = (task) => (TEXTS ? cut(TEXTS[task], 34) : `${FAMILY_NAMES[familyOf(task)]} ${1 + placeInFamily(task)}`);
const signed = (x, digits = 2) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(digits)}`;
const percent = (x) => `${Math.round(100 * x)} %`;
const ORANGE = "#e08214", BLUE = "#4c8fd6", GREEN = "#1b9e77", GREY = "#8a8f98";
// ColorBrewer's PuOr with a darker middle, as in all figures of this program: orange below 0, purple above.
const PUOR = [[179, 88, 6], [241, 163, 64], [201, 199, 207], [153, 142, 195], [84, 39, 136]];

function colourOf(q) {
  const at = Math.min(Math.max(2 * (q + 1), 0), 3.9999), i = Math.floor(at), part = at - i;
  return `rgb(${PUOR[i].map((low, k) => Math.round(low + part * (PUOR[i + 1][k] - low))).join(",")})`;
}

// A canvas with sharp pixels, cleared, as [context, width, height, ink].
function cleared(canvas) {
  const box = canvas.getBoundingClientRect(), scale = window.devicePixelRatio || 1;
  const [width, height] = [Math.max(1, box.width), Math.max(1, box.height)];
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
  }
  const context = canvas.getContext("2d"), style = getComputedStyle(canvas);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  // A presenter's type is larger.
  context.pgType = Number(style.getPropertyValue("--pg-type")) || 1;
  context.font = `12px ${style.fontFamily}`;
  context.textBaseline = "middle";
  return [context, width, height, style.color];
}

const bigger = (context, size, weight = "") => (context.font = context.font.replace(/^.*?[\d.]+px/, `${weight} ${size * context.pgType}px`));

// --- the map ----------------------------------------------------------------------------------------------------------

// Families lie on a ring, as in the embeddings; a family's tasks around its middle, a task's memories around it.
const RING = [[0.22, 0], [0.5, 0], [0.78, 0], [1, 0.5], [0.78, 1], [0.5, 1], [0.22, 1], [0, 0.5]];

function mapPlaces(width, height) {
  const small = Math.min(width / 780, height / 460);
  const middle = (family) => {
    const [x, y] = RING[Math.floor((family * RING.length) / FAMILIES)], side = 78 * small;
    return [side + x * (width - 2 * side), side + 14 * small + y * (height - 2 * side - 20 * small)];
  };
  const task = (one) => {
    const [x, y] = middle(familyOf(one)), angle = (placeInFamily(one) / tasksOf(familyOf(one)).length) * 2 * Math.PI + 0.5 + familyOf(one);
    return [x + 37 * small * Math.cos(angle), y + 37 * small * Math.sin(angle)];
  };
  const memory = (one, place) => {
    const [x, y] = task(one), r = small * (6.5 + 5.6 * Math.sqrt(place)), angle = place * 2.399963 + one;
    return [x + r * Math.cos(angle), y + r * Math.sin(angle)];
  };
  return { middle, task, memory, small };
}

// Where each memory lies, and which it is of those of its task.
function memoryPlaces(run, places) {
  const counts = new Array(TASKS).fill(0);
  return run.steps.map(({ task }) => places.memory(task, counts[task]++));
}

const eased = (x) => (x < 0 ? 0 : x > 1 ? 1 : x * x * (3 - 2 * x));

// The memory after `t` steps with q as in `q`; `phase` from 0 to 1 is how far the next step is.
function paintMap(canvas, run, t, q, phase, hovered = -1) {
  const [context, width, height, ink] = cleared(canvas);
  const places = mapPlaces(width, height), where = memoryPlaces(run, places), { small } = places;
  const next = phase > 0 ? run.steps[t] : null;
  const first = Math.max(0, t - run.settings.keep);
  const pool = new Set(next?.pool), chosen = new Set(next?.chosen);
  for (let family = 0; family < FAMILIES; family += 1) {
    const [x, y] = places.middle(family), ago = t - (run.changed[family].findLast((step) => step <= t + (next ? 1 : 0)) ?? -1e9);
    context.beginPath();
    context.arc(x, y, 72 * small, 0, 7);
    context.fillStyle = GREY;
    context.globalAlpha = 0.1;
    context.fill();
    context.globalAlpha = 1;
    if (ago < 36) {
      context.setLineDash([5, 4]);
      context.lineWidth = ago < 2 ? 4 : 2;
      context.strokeStyle = ORANGE;
      context.stroke();
      context.setLineDash([]);
    }
    bigger(context, Math.max(10, 12.5 * small), "600");
    context.textAlign = "center";
    context.fillStyle = ink;
    context.fillText(FAMILY_NAMES[family] + (ago < 36 ? " changed" : ""), x, y - 80 * small);
  }
  if (next) {
    const [x, y] = places.task(next.task);
    for (const id of next.pool) {
      const inside = chosen.has(id), reach = eased(phase / 0.22);
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x + reach * (where[id][0] - x), y + reach * (where[id][1] - y));
      const picked = inside && phase > 0.28;
      context.lineWidth = picked ? 3.5 : 1;
      context.globalAlpha = picked ? 0.95 : 0.45;
      context.strokeStyle = picked ? BLUE : GREY;
      context.stroke();
    }
    context.globalAlpha = 1;
  }
  for (let id = first; id < t; id += 1) {
    const [x, y] = where[id], credited = next && phase > 0.78 && chosen.has(id);
    const value = credited ? q[id] + eased((phase - 0.78) / 0.14) * (next.moved[next.chosen.indexOf(id)] - q[id]) : q[id];
    const r = small * (3.6 + 2.2 * Math.abs(value)) * (credited ? 1.35 : 1) + (hovered === id ? 2 : 0);
    context.beginPath();
    if (run.steps[id].success) context.arc(x, y, r, 0, 7);
    else context.rect(x - r * 0.85, y - r * 0.85, 1.7 * r, 1.7 * r);
    context.globalAlpha = next && phase > 0.1 && phase < 0.9 && !pool.has(id) && canvas.dim ? 0.3 : 1;
    context.fillStyle = colourOf(value);
    context.fill();
    context.lineWidth = chosen.has(id) && phase > 0.28 ? 2 : 0.8;
    context.strokeStyle = chosen.has(id) && phase > 0.28 ? BLUE : GREY;
    context.stroke();
  }
  context.globalAlpha = 1;
  if (next) {
    const [x, y] = places.task(next.task);
    context.fillStyle = "#f2c230";
    context.strokeStyle = ink;
    context.lineWidth = 1;
    context.beginPath();
    for (let i = 0; i < 10; i += 1) {
      const r = (i % 2 ? 3.6 : 8.5) * small * 1.15, angle = (i / 10) * 2 * Math.PI - Math.PI / 2;
      context.lineTo(x + r * Math.cos(angle), y + r * Math.sin(angle));
    }
    context.closePath();
    context.fill();
    context.stroke();
    if (phase < 0.25) {
      context.beginPath();
      context.arc(x, y, 8 + 60 * phase * 4 * small, 0, 7);
      context.globalAlpha = 1 - phase * 4;
      context.strokeStyle = "#f2c230";
      context.lineWidth = 3;
      context.stroke();
      context.globalAlpha = 1;
    }
    paintReward(context, next, phase, where, width, height, small, ink);
  }
  bigger(context, Math.max(11, 13 * small));
  context.textAlign = "center";
  context.fillStyle = ink;
  const made = next ?? run.steps[t - 1];
  const caption = !made ? "Nothing is remembered yet." : !next || phase > 0.45
    ? `${taskName(made.task)} → ${WAY_NAMES[made.way]}${!next || phase > 0.55 ? (made.success ? " worked" : " failed") : ""}`
    : `New task: ${taskName(made.task)}`;
  context.fillText(caption, width / 2, height / 2 + 38 * small);
  if (made?.explored && (!next || phase > 0.28)) context.fillText("ε: the memories were drawn by chance", width / 2, height / 2 + 56 * small);
  return where;
}

// The reward falls into the middle, and from there on the memories that get the credit.
function paintReward(context, step, phase, where, width, height, small, ink) {
  if (phase < 0.5) return;
  const coin = (x, y, r) => {
    context.beginPath();
    context.arc(x, y, r, 0, 7);
    context.fillStyle = step.success ? "#542788" : "#b35806";
    context.fill();
    context.fillStyle = "white";
    bigger(context, Math.round(r * 0.95), "700");
    context.textAlign = "center";
    if (r > 8) context.fillText(step.success ? "+1" : "−1", x, y + 0.5);
  };
  const fall = eased((phase - 0.5) / 0.14), middle = height / 2;
  if (phase < 0.9) coin(width / 2, -20 + fall * (middle + 20), 17 * small);
  if (phase > 0.64 && phase < 0.8) {
    const way = eased((phase - 0.64) / 0.14);
    for (const id of step.chosen) coin(width / 2 + way * (where[id][0] - width / 2), middle + way * (where[id][1] - middle), 6 * small);
  }
  if (phase > 0.8) {
    bigger(context, Math.max(10, 11.5 * small), "700");
    context.textAlign = "left";
    context.fillStyle = ink;
    const line = Math.max(10, 11.5 * small), written = [];
    const changes = step.chosen.map((id, at) => [id, signed(step.moved[at])]).sort(([a], [b]) => where[a][1] - where[b][1]);
    for (const [id, text] of changes) {
      const wide = context.measureText(text).width + 3, x = Math.min(where[id][0] + 8 * small, width - wide), end = x + wide;
      let y = where[id][1] - 7 * small;
      while (written.some((other) => Math.abs(other.y - y) < line && x < other.end && other.x < end)) y += line;
      written.push({ x, end, y });
      context.fillText(text, x, y);
    }
  }
}

// q over time of every memory of a family up to step `t`, a colour for each of its tasks.
function paintFamily(canvas, run, family, t) {
  const [context, width, height, ink] = cleared(canvas);
  const left = 34, right = width - 8, top = 8, bottom = height - 20;
  const x = (step) => left + (step / LENGTH) * (right - left), y = (q) => bottom - ((q + 1) / 2) * (bottom - top);
  bigger(context, 11);
  context.fillStyle = ink;
  for (const q of [-1, 0, 1]) {
    Object.assign(context, { strokeStyle: GREY, lineWidth: 1, globalAlpha: 0.4, textAlign: "right" });
    context.beginPath();
    context.moveTo(left, y(q));
    context.lineTo(right, y(q));
    context.stroke();
    context.globalAlpha = 1;
    context.fillText(q ? signed(q, 0) : "q 0", left - 4, y(q));
  }
  context.textAlign = "center";
  for (let step = 48; step < LENGTH; step += 48) context.fillText(step, x(step), bottom + 11);
  for (const at of run.changed[family].filter((one) => one <= t)) {
    Object.assign(context, { strokeStyle: ORANGE, lineWidth: 2 });
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(x(at), top);
    context.lineTo(x(at), bottom);
    context.stroke();
    context.setLineDash([]);
  }
  const lines = new Map();
  for (let i = 0; i < t; i += 1) {
    if (familyOf(run.steps[i].task) === family) lines.set(i, [[i + 1, 0]]);
    run.steps[i].chosen.forEach((id, at) => lines.get(id)?.push([i + 1, lines.get(id).at(-1)[1]], [i + 1, run.steps[i].moved[at]]));
  }
  for (const [id, points] of lines) {
    Object.assign(context, { strokeStyle: FAMILY_COLOURS[placeInFamily(run.steps[id].task) % FAMILY_COLOURS.length][1], lineWidth: 1.4, globalAlpha: 0.75 });
    context.beginPath();
    for (const [step, q] of [...points, [t, points.at(-1)[1]]]) context.lineTo(x(step), y(q));
    context.stroke();
  }
  context.globalAlpha = 1;
}

// --- the strip --------------------------------------------------------------------------------------------------------

// The mean of the seeds bold in its band, the ever solved, the hatched gap; the own run thin up to `t`. The means go up to
// the step `shown.until`, by default to the end. Gives which step lies at a place, and where a step lies.
function paintStrip(canvas, run, t, band, baseline, shown = {}) {
  const [context, width, height, ink] = cleared(canvas);
  const type = context.pgType, left = 38 * type, right = width - Math.min(178 * type, width * 0.36), top = 12, bottom = height - 22 * type;
  const steps = run.steps.length, until = shown.until ?? steps, last = until - 1;
  const x = (step) => left + (step / steps) * (right - left), y = (share) => bottom - share * (bottom - top);
  const line = (values, until, colour, weight, dash = []) => {
    context.beginPath();
    for (let i = 0; i < until; i += 1) context.lineTo(x(i + 1), y(values(i)));
    Object.assign(context, { strokeStyle: colour, lineWidth: weight, lineJoin: "round" });
    context.setLineDash(dash);
    context.stroke();
    context.setLineDash([]);
  };
  const area = (low, high) => {
    context.beginPath();
    for (let i = 0; i < until; i += 1) context.lineTo(x(i + 1), y(high[i]));
    for (let i = last; i >= 0; i -= 1) context.lineTo(x(i + 1), y(low[i]));
    context.closePath();
  };
  context.strokeStyle = GREY;
  context.fillStyle = ink;
  bigger(context, 11);
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    context.globalAlpha = 0.25;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(left, y(share));
    context.lineTo(right, y(share));
    context.stroke();
    context.globalAlpha = 1;
    context.textAlign = "right";
    context.fillText(percent(share), left - 4, y(share));
  }
  for (const [share, name] of [[FLOOR, "guessing 40 %"], [CEILING, "best there is 90 %"]]) {
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(left, y(share));
    context.lineTo(right, y(share));
    context.stroke();
    context.setLineDash([]);
    context.textAlign = "right";
    context.fillText(name, right - 4, y(share) - 7 * type);
  }
  // Its 0 below the axis, its word left of that: on a small chart 48 is near.
  context.fillText("step 0", left + 4, bottom + 12 * type);
  context.textAlign = "center";
  for (let step = 48; step <= steps; step += 48) context.fillText(`${step}`, x(step), bottom + 12 * type);
  for (const at of run.settings.shifts.filter((one) => one <= steps)) {
    context.strokeStyle = ORANGE;
    context.lineWidth = 2;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(x(at), top - 8);
    context.lineTo(x(at), bottom);
    context.stroke();
    context.setLineDash([]);
    context.textAlign = "left";
    context.fillText("the world shifts", x(at) + 4, bottom - 8);
    if (!shown.movable) continue;
    // The handle by which the mark is dragged.
    context.fillStyle = ORANGE;
    context.beginPath();
    context.moveTo(x(at) - 7, top - 10);
    context.lineTo(x(at) + 7, top - 10);
    context.lineTo(x(at), top + 2);
    context.fill();
    context.fillStyle = ink;
  }
  if (band && until) {
    context.save();
    area(band.now, band.ever);
    context.clip();
    context.strokeStyle = ORANGE;
    context.globalAlpha = 0.45;
    context.lineWidth = 1;
    context.beginPath();
    for (let i = left - height; i < right; i += 7) {
      context.moveTo(i, bottom);
      context.lineTo(i + height, bottom - height);
    }
    context.stroke();
    context.restore();
    context.fillStyle = BLUE;
    context.globalAlpha = 0.22;
    area(band.low, band.high);
    context.fill();
    context.globalAlpha = 1;
  }
  if (baseline) line((i) => baseline.now[i], until, GREY, 1.5, [2, 3]);
  if (band) {
    line((i) => band.ever[i], until, GREEN, 3);
    line((i) => band.now[i], until, BLUE, 3.5);
  }
  line((i) => run.steps[i].ever, t, GREEN, 1);
  line((i) => run.steps[i].now, t, ink, 1.2);
  context.strokeStyle = ink;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x(t), top);
  context.lineTo(x(t), bottom);
  context.stroke();
  // At the end of each line what it is, apart from each other.
  const names = [];
  if (band && until) {
    const gap = band.ever[last] - band.now[last];
    names.push([band.ever[last], GREEN, `ever solved ${percent(band.ever[last])}`]);
    names.push([band.now[last] + gap / 2, ORANGE, `gap ${percent(gap)}: solved, now failing`]);
    names.push([band.now[last], BLUE, `solved now ${percent(band.now[last])} of ${TASKS} tasks`]);
    if (baseline) names.push([baseline.now[last], GREY, shown.baseline ?? "dotted: the default"]);
  }
  if (t) names.push([run.steps[t - 1].now, ink, `thin: seed ${run.settings.seed}, ${percent(run.steps[t - 1].now)}`]);
  names.sort((a, b) => b[0] - a[0]);
  const ys = names.map(([share]) => y(share));
  for (let i = 1; i < ys.length; i += 1) ys[i] = Math.max(ys[i], ys[i - 1] + 15 * type);
  const over = Math.max(0, (ys.at(-1) ?? 0) - bottom);
  context.textAlign = "left";
  names.forEach(([, colour, text], i) => {
    const at = Math.max(ys[i] - over, top + 15 * type * i);
    context.fillStyle = colour;
    context.fillRect(right + 6, at - 5, 4, 10);
    context.fillStyle = ink;
    context.fillText(text, right + 14, at, width - right - 16);
  });
  return { x, stepAt: (place) => Math.min(Math.max(Math.round(((place - left) / (right - left)) * steps), 0), steps) };
}

// --- the plane --------------------------------------------------------------------------------------------------------

// The dots that no other beats in both, by what they keep.
function frontierOf({ dots }) {
  const better = (a, b) => a.kept[0] >= b.kept[0] && a.gained[0] >= b.gained[0] && (a.kept[0] > b.kept[0] || a.gained[0] > b.gained[0]);
  return dots.filter((one) => !dots.some((other) => better(other, one))).sort((a, b) => a.kept[0] - b.kept[0]);
}

// What was kept of the old world against what was gained in the new: `plane` is the file of benchmarks/plane.py.
function paintPlane(canvas, plane, own) {
  const [context, width, height, ink] = cleared(canvas);
  const left = 44, right = width - 10, top = 10, bottom = height - 32, low = 0.35, high = 0.9;
  const x = (share) => left + ((share - low) / (high - low)) * (right - left);
  const y = (share) => bottom - ((share - low) / (high - low)) * (bottom - top);
  bigger(context, 11);
  context.fillStyle = ink;
  context.strokeStyle = GREY;
  context.lineWidth = 1;
  for (let share = 0.4; share < 0.91; share += 0.1) {
    context.globalAlpha = 0.25;
    context.beginPath();
    context.moveTo(x(share), top);
    context.lineTo(x(share), bottom);
    context.moveTo(left, y(share));
    context.lineTo(right, y(share));
    context.stroke();
    context.globalAlpha = 1;
    context.textAlign = "center";
    context.fillText(Math.round(share * 100), x(share), bottom + 10);
    context.textAlign = "right";
    context.fillText(Math.round(share * 100), left - 5, y(share));
  }
  context.textAlign = "center";
  context.fillText("kept of the old world, % → stability", (left + right) / 2, bottom + 24);
  context.save();
  context.translate(11, (top + bottom) / 2);
  context.rotate(-Math.PI / 2);
  context.fillText("gained in the new, % → plasticity", 0, 0);
  context.restore();
  const cross = ({ kept, gained }) => {
    context.beginPath();
    context.moveTo(x(kept[0] - kept[1]), y(gained[0]));
    context.lineTo(x(kept[0] + kept[1]), y(gained[0]));
    context.moveTo(x(kept[0]), y(gained[0] - gained[1]));
    context.lineTo(x(kept[0]), y(gained[0] + gained[1]));
    context.stroke();
  };
  const frontier = frontierOf(plane);
  for (const [from, to] of [[[x(FLOOR), top], [x(FLOOR), bottom]], [[left, y(FLOOR)], [right, y(FLOOR)]]]) {
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
    context.setLineDash([]);
  }
  context.fillText("guessing", right - 26, y(FLOOR) - 7);
  context.strokeStyle = BLUE;
  context.lineWidth = 2;
  context.beginPath();
  for (const one of frontier) context.lineTo(x(one.kept[0]), y(one.gained[0]));
  context.stroke();
  const marks = [];
  for (const one of plane.dots) {
    context.globalAlpha = 0.4;
    context.strokeStyle = BLUE;
    context.lineWidth = 1;
    cross(one);
    context.globalAlpha = 0.25 + 0.75 * one.lambda;
    context.beginPath();
    context.arc(x(one.kept[0]), y(one.gained[0]), 2.2 + 2.6 * one.alpha, 0, 7);
    context.fillStyle = BLUE;
    context.fill();
    context.globalAlpha = 1;
    marks.push([x(one.kept[0]), y(one.gained[0]), one]);
  }
  for (const ghost of plane.ghosts) {
    const [gx, gy] = [x(ghost.kept[0]), y(ghost.gained[0])];
    context.strokeStyle = ORANGE;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(x(ghost.before[0]), gy);
    context.lineTo(gx, gy);
    context.stroke();
    context.setLineDash([]);
    cross(ghost);
    context.lineWidth = 2;
    context.beginPath();
    context.arc(gx, gy, 6, 0, 7);
    context.stroke();
    context.fillStyle = ink;
    context.textAlign = "center";
    context.fillText(ghost.loss === "value" ? "trained on" : "trained on (softmax)", gx, gy + 15);
    marks.push([gx, gy, ghost]);
  }
  if (own) {
    context.fillStyle = "#f2c230";
    context.strokeStyle = ink;
    context.lineWidth = 1.5;
    cross(own);
    context.beginPath();
    context.arc(x(own.kept[0]), y(own.gained[0]), 7, 0, 7);
    context.fill();
    context.stroke();
    marks.push([x(own.kept[0]), y(own.gained[0]), own]);
  }
  return marks;
}

// A mean chance of success over the epochs in its 95 % band, between what guessing gets and the best there is.
function paintChance(canvas, { made, other, names, of, shifts, t }) {
  const [context, width, height, ink] = cleared(canvas), type = context.pgType;
  const left = 40 * type, right = width - Math.min(150 * type, width * 0.3), top = 18 * type, bottom = height - 22 * type, low = 0.2, high = 1;
  const x = (step) => left + (step / LENGTH) * (right - left), y = (share) => bottom - ((share - low) / (high - low)) * (bottom - top);
  const stroke = (points, colour, weight, dash = []) => {
    Object.assign(context, { strokeStyle: colour, lineWidth: weight, lineJoin: "round" });
    context.setLineDash(dash);
    context.beginPath();
    for (const [a, b] of points) context.lineTo(a, b);
    context.stroke();
    context.setLineDash([]);
  };
  bigger(context, 11);
  context.fillStyle = ink;
  context.textAlign = "left";
  context.fillText(`chance of success, ${of}; band: 95 %`, left, 8 * type);
  for (const [share, name] of [[FLOOR, "guessing 40 %"], [CEILING, "best there is 90 %"]]) {
    stroke([[left, y(share)], [right, y(share)]], GREY, 1, [2, 3]);
    context.fillText(name, left + 4, y(share) - 7 * type);
  }
  context.textAlign = "right";
  for (const share of [0.2, 0.4, 0.6, 0.8, 1]) context.fillText(percent(share), left - 4, y(share));
  context.textAlign = "center";
  for (let step = 48; step <= LENGTH; step += 48) context.fillText(`${step}`, x(step), bottom + 12 * type);
  for (const at of shifts) stroke([[x(at), top], [x(at), bottom]], ORANGE, 2, [5, 4]);
  stroke([[x(t), top], [x(t), bottom]], ink, 1);
  const ends = [];
  for (const [curve, colour, name] of [[other, GREY, names[0]], [made, BLUE, names[1]]]) {
    if (!curve) continue;
    // A line across a shift would begin to fall before it.
    const breaks = [0, ...shifts.map((at) => Math.floor((at - 1) / TASKS)), curve.length];
    for (let i = 0; i + 1 < breaks.length; i += 1) {
      const part = curve.slice(breaks[i], breaks[i + 1]).map(([middle, half], epoch) => [x((breaks[i] + epoch + 0.5) * TASKS), middle, half]);
      context.beginPath();
      part.forEach(([at, middle, half]) => context.lineTo(at, y(middle + half)));
      [...part].reverse().forEach(([at, middle, half]) => context.lineTo(at, y(middle - half)));
      Object.assign(context, { fillStyle: colour, globalAlpha: 0.22 });
      context.fill();
      context.globalAlpha = 1;
      stroke(part.map(([at, middle]) => [at, y(middle)]), colour, 3);
    }
    ends.push([y(curve.at(-1)[0]), colour, name]);
  }
  ends.sort((a, b) => a[0] - b[0]);
  context.textAlign = "left";
  ends.forEach(([at, colour, name], i) => {
    const place = i ? Math.max(at, ends[0][0] + 16 * type) : at;
    Object.assign(context, { fillStyle: colour });
    context.fillRect(right + 4, place - 5, 4, 10);
    context.fillStyle = ink;
    context.fillText(name, right + 12, place, width - right - 14);
  });
}

// --- for lessons ------------------------------------------------------------------------------------------------------

// Each of the seeds under two settings, their means, and the own seed: what holds on average, and for how many.
function paintSeeds(canvas, { from, to, names, own, unit, top = 1 }) {
  const [context, width, height, ink] = cleared(canvas);
  const type = context.pgType, left = 46 * type, right = width - 62 * type, high = 30 * type, low = height - 24 * type;
  const x = [left + 12 * type, right - 12 * type], y = (value) => low - (Math.min(value, top) / top) * (low - high);
  bigger(context, 11.5);
  context.fillStyle = ink;
  for (const part of [0, 0.5, 1]) {
    context.strokeStyle = GREY;
    context.globalAlpha = 0.3;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(left, y(part * top));
    context.lineTo(right, y(part * top));
    context.stroke();
    context.globalAlpha = 1;
    context.textAlign = "right";
    context.fillText(unit(part * top), left - 4, y(part * top));
  }
  context.textAlign = "center";
  const line = (a, b, colour, weight, fade) => {
    context.globalAlpha = fade;
    Object.assign(context, { strokeStyle: colour, fillStyle: colour, lineWidth: weight });
    if (b !== undefined) {
      context.beginPath();
      context.moveTo(x[0], y(a));
      context.lineTo(x[1], y(b));
      context.stroke();
    }
    for (const [at, value] of [[0, a], [1, b]]) {
      if (value === undefined) continue;
      context.beginPath();
      context.arc(x[at], y(value), weight + 1.5, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
  };
  from.forEach((a, i) => line(a, to[i], BLUE, 1, 0.35));
  const average = (values) => (values.length ? mean(values) : undefined);
  line(average(from), average(to), BLUE, 4, 1);
  if (own[0] !== undefined) line(own[0], own[1], "#c35f9b", 2.5, 1);
  context.fillStyle = ink;
  names.forEach((name, at) => (at === 0 || to.length) && context.fillText(name, x[at], low + 13 * type, 130 * type));
  bigger(context, 12.5, "700");
  context.textAlign = "left";
  if (to.length) context.fillText(unit(average(to)), x[1] + 9, y(average(to)));
  else if (from.length) context.fillText(unit(average(from)), x[0] + 9, y(average(from)));
  bigger(context, 11.5);
  const summary = to.length ? `mean ${unit(average(from))} → ${unit(average(to))}; higher in ${to.filter((b, i) => b > from[i]).length} of ${to.length}` : `mean ${from.length ? unit(average(from)) : ""}`;
  context.fillText(`${from.length} seeds: ${summary}`, 4, 9 * type, width - 8);
  return summary;
}

// q of some memories over the steps up to `t`: a mark for each reward, up for +1 and down for −1.
function paintCurves(canvas, run, ids, t) {
  const [context, width, height, ink] = cleared(canvas), type = context.pgType;
  const left = 50 * type, right = width - 20, top = (10 + 18 * ids.length) * type, bottom = height - 28 * type, colours = [BLUE, ORANGE];
  const x = (step) => left + (step / LENGTH) * (right - left), y = (q) => bottom - ((q + 1) / 2) * (bottom - top);
  bigger(context, 12);
  for (const q of [-1, 0, 1]) {
    Object.assign(context, { strokeStyle: GREY, lineWidth: 1, fillStyle: ink, globalAlpha: q ? 0.3 : 0.8, textAlign: "right" });
    context.beginPath();
    context.moveTo(left, y(q));
    context.lineTo(right, y(q));
    context.stroke();
    context.globalAlpha = 1;
    context.fillText(q ? `q ${signed(q, 0)}` : "0", left - 6, y(q));
  }
  context.textAlign = "center";
  for (let step = 48; step <= LENGTH; step += 48) context.fillText(step, x(step), bottom + 13 * type);
  for (const at of run.settings.shifts) {
    context.strokeStyle = ORANGE;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(x(at), top);
    context.lineTo(x(at), bottom);
    context.stroke();
    context.setLineDash([]);
    context.textAlign = "left";
    // Above the key, which a narrow picture has below it.
    context.fillText("the world shifts", x(at) + 4, bottom - 26);
  }
  ids.forEach((id, at) => {
    const written = run.steps[id], colour = colours[at];
    let q = 0;
    Object.assign(context, { strokeStyle: colour, fillStyle: colour, lineWidth: 2.5 });
    context.beginPath();
    context.moveTo(x(id + 1), y(0));
    const marks = [];
    for (let i = id + 1; i < t; i += 1) {
      const place = run.steps[i].chosen.indexOf(id);
      if (place < 0) continue;
      context.lineTo(x(i + 1), y(q));
      q = run.steps[i].moved[place];
      context.lineTo(x(i + 1), y(q));
      marks.push([i, q, run.steps[i]]);
    }
    if (t > id) context.lineTo(x(t), y(q));
    context.stroke();
    for (const [i, value, step] of marks) {
      const size = 5 * type, up = step.success ? -1 : 1;
      context.beginPath();
      context.moveTo(x(i + 1), y(value) + up * size);
      context.lineTo(x(i + 1) - size, y(value) - up * size);
      context.lineTo(x(i + 1) + size, y(value) - up * size);
      context.closePath();
      // Hollow: the model took another way than this memory's.
      if (step.way === written.way) context.fill();
      else context.stroke();
    }
    context.fillStyle = ink;
    context.textAlign = "left";
    bigger(context, 12.5, "600");
    context.fillText(`${at ? "orange" : "blue"}: written at step ${id + 1}, ${taskName(written.task)}, ${WAY_NAMES[written.way]} ${written.success ? "worked" : "failed"}; q ${signed(q)}`, left + 4, 11 * type + at * 17 * type);
    bigger(context, 12);
  });
  context.fillStyle = ink;
  context.textAlign = "right";
  context.fillText("▲ +1  ▼ −1  hollow: the model did something else", right, bottom - 9);
}

// Who earned the reward of the step after which the run is: each memory of the prompt with the credit that all share, and
// what the model would have done without it, if that is `known`.
function paintCredit(canvas, run, t, known) {
  const [context, width, height, ink] = cleared(canvas), step = run.steps[t - 1];
  const type = (context.pgType *= width > 700 ? 1.3 : 1), columns = [8, 0.4 * width, 0.62 * width], wide = [0.36, 0.2, 0.36].map((part) => part * width);
  context.fillStyle = ink;
  bigger(context, 15, "600");
  context.textAlign = "left";
  if (!step) return void context.fillText("No task has come yet.", 8, 20 * type);
  context.fillText(`Step ${t}: ${taskName(step.task)} → ${WAY_NAMES[step.way]} ${step.success ? "worked" : "failed"}: R = ${step.success ? "+1" : "−1"}`, 8, 20 * type, width - 16);
  bigger(context, 13, "600");
  ["in the prompt", "shared credit", known ? "left out, the model" : ""].forEach((text, i) => context.fillText(text, columns[i], 56 * type, wide[i]));
  const without = waysWithout(run, step), row = Math.min(46 * type, (height - 80 * type) / Math.max(step.chosen.length, 1));
  step.chosen.forEach((id, i) => {
    const of = run.steps[id], y = 84 * type + i * row, same = without[i] === step.way;
    bigger(context, 13);
    context.fillText(`${WAY_NAMES[of.way]} ${of.success ? "worked" : "failed"} (${taskName(of.task)})`, columns[0], y, wide[0]);
    context.fillText(`${step.success ? "+1" : "−1"}   q → ${signed(step.moved[i])}`, columns[1], y, wide[1]);
    if (!known) return;
    context.fillStyle = same ? GREY : BLUE;
    context.fillRect(columns[2], y - 7 * type, 6 * type, 14 * type);
    context.fillStyle = ink;
    context.fillText(same ? "does the same: no credit" : `does ${WAY_NAMES[without[i]]}: it decided`, columns[2] + 12 * type, y, wide[2] - 12 * type);
  });
  if (!step.chosen.length) context.fillText("No memory was in the prompt.", columns[0], 84 * type);
}

// The two ways of learning on the plane, step by step through the new world; up to the place `at` of each trail.
function paintTrails(canvas, trails, at) {
  const [context, width, height, ink] = cleared(canvas), type = context.pgType;
  const left = 62 * type, right = width - 30 * type, top = 20, bottom = height - 48 * type;
  const x = (share) => left + ((share - 0.3) / 0.6) * (right - left), y = (share) => bottom - ((share - 0.1) / 0.8) * (bottom - top);
  bigger(context, 13);
  context.fillStyle = ink;
  for (let share = 0.1; share < 0.91; share += 0.1) {
    Object.assign(context, { strokeStyle: GREY, lineWidth: 1, globalAlpha: 0.25 });
    context.beginPath();
    if (share > 0.29) {
      context.moveTo(x(share), top);
      context.lineTo(x(share), bottom);
    }
    context.moveTo(left, y(share));
    context.lineTo(right, y(share));
    context.stroke();
    context.globalAlpha = 1;
    context.textAlign = "center";
    if (share > 0.29) context.fillText(percent(share), x(share), bottom + 13 * type);
    context.textAlign = "right";
    context.fillText(percent(share), left - 6, y(share));
  }
  context.textAlign = "center";
  context.fillText("can do of the old tasks → stability", (left + right) / 2, bottom + 34 * type);
  context.save();
  context.translate(13, (top + bottom) / 2);
  context.rotate(-Math.PI / 2);
  context.fillText("can do of the changed tasks → plasticity", 0, 0);
  context.restore();
  let named = 0;
  for (const [points, colour, name] of [[trails.memory, BLUE, "frozen model with a memory"], [trails.trained, ORANGE, "model that is trained on"],
    [trails.replayed, GREEN, "trained on, with replay"], [trails.anchored, "#c35f9b", "trained on, regularised"]]) {
    if (!points?.length) continue;
    Object.assign(context, { strokeStyle: colour, fillStyle: colour, lineWidth: 3 });
    context.beginPath();
    points.slice(0, at + 1).forEach(([kept, gained]) => context.lineTo(x(kept), y(gained)));
    context.stroke();
    points.slice(0, at + 1).forEach(([kept, gained], i) => {
      context.beginPath();
      context.arc(x(kept), y(gained), i === at ? 9 : 3, 0, 7);
      context.fill();
    });
    const [kept, gained] = points[Math.min(at, points.length - 1)];
    context.fillStyle = ink;
    bigger(context, 13, "600");
    context.textAlign = colour === BLUE ? "right" : "center";
    if (trails.replayed) {
      // Four that may lie near each other are named beside the axes, where none of them comes.
      const row = bottom - (14 + 19 * named++) * type;
      context.beginPath();
      context.arc(left + 14, row, 6, 0, 7);
      context.fillStyle = colour;
      context.fill();
      context.fillStyle = ink;
      context.textAlign = "left";
      context.fillText(name, left + 26, row);
    } else context.fillText(name, x(kept) + (colour === BLUE ? -14 : 0), y(gained) + (colour === BLUE ? 0 : 20 * type));
    bigger(context, 13);
  }
}
