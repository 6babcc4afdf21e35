import { amountColour, boxOf, clamp, css, ease, el, firstFree, mix, NAMED, namedColour, outcomeColour, qColour, set, shortened, signed, svg } from "./dom.js";

// The map: all memories on a canvas, and what this step is about as elements above it. Places are the stored ones: only
// a person's zoom and pan move anything.

const MARGIN = 34;
// Of the smaller side, where that is less; and how much of the plot the memories take at least.
const MARGIN_SHARE = 0.06;
const USED = 0.7;
// Of the picture beyond what is seen of it, on each side.
const PAD = 120;
const MOST_STRETCH = 1.6;
// How near phase A brings the query and the pool, and how far they stay from the edge.
const NEAREST_ZOOM = 8;
// A view that is hardly nearer would only shift what a person looks at.
const LEAST_ZOOM = 1.2;
const NEAR_MARGIN = 48;
// Of more candidates each takes less room.
const ROOMY_POOL = 12;
// Glyphs that lie so close are one to the eye; under the hand they fan out.
const TOUCHING = 4;
const MOST_FANNED = 24;
const ROOMY_GLYPHS = 500;
const CROWDED = 20000;
const MOST_GLYPHS = 3000;
const MOST_GROUPS = 2 ** 24;
const MOST_SLICES = 24;
const GOLDEN = 2.399963229728653;
const FIRST_RING = 15;
const CELL = 7;
// How far above or below its dot a name may stand, nearest first.
const NAME_SHIFTS = [0, 13, -13, 26, -26, 39, -39, 52, -52, 65, -65, 78, -78, 91, -91];
const STAR_SIZE = 9;
const STAR = "M0,-9 2.1,-2.9 8.6,-2.8 3.4,1.1 5.3,7.3 0,3.6 -5.3,7.3 -3.4,1.1 -8.6,-2.8 -2.1,-2.9Z";
export const MAP_COLOURS = ["q", "outcome", "age", "family", "run"];

export class MemoryMap {
  constructor(parent, on) {
    this.on = on;
    this.box = el("div", "stage-plot", parent);
    this.canvas = el("canvas", "", this.box);
    this.svg = svg("svg", { role: "group", "aria-label": "Map of the memory" }, this.box);
    this.links = svg("g", { class: "stage-links" }, this.svg);
    this.layer = svg("g", {}, this.svg);
    this.opened = svg("g", {}, this.svg);
    this.star = svg("path", { d: STAR, class: "stage-star" }, this.svg);
    // Above every marker: no name has one in it.
    this.names = svg("g", {}, this.svg);
    this.lassoed = svg("path", { class: "stage-lasso" }, this.svg);
    this.tip = el("div", "stage-tip", this.box);
    this.tip.hidden = true;
    this.colour = "q";
    this.size = "uses";
    this.marked = null;
    this.view = null;
    this.open = -1;
    this.fan = null;
    this.cast = [];
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.listen();
  }

  // --- where things are -------------------------------------------------------------------------------------------

  layout(width, height, model, theme) {
    const another = this.layoutId !== model.data.memories.layout || this.width !== width || this.height !== height;
    Object.assign(this, { width, height, model, theme, layoutId: model.data.memories.layout });
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const [wide, high] = [width + 2 * PAD, height + 2 * PAD];
    this.canvas.width = Math.round(wide * ratio);
    this.canvas.height = Math.round(high * ratio);
    this.ratio = ratio;
    Object.assign(this.canvas.style, { left: `${-PAD}px`, top: `${-PAD}px`, width: `${wide}px`, height: `${high}px` });
    Object.assign(this.box.style, { width: `${width}px`, height: `${height}px` });
    set(this.svg, { viewBox: `0 0 ${width} ${height}`, width, height });
    // Data that is added moves nothing: only another layout, or another size of what nobody has zoomed, does.
    if (!this.view || (another && !this.view.touched)) this.fit();
    this.dirty = true;
  }

  fit() {
    const { groups, steps } = this.model;
    const queries = steps.map((step) => step.query).filter(Boolean);
    let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
    const take = (x, y) => {
      left = Math.min(left, x);
      right = Math.max(right, x);
      bottom = Math.min(bottom, y);
      top = Math.max(top, y);
    };
    for (const group of this.framed ?? groups) take(group.x, group.y);
    for (const [x, y] of queries) take(x, y);
    if (left > right) [left, right, bottom, top] = [-1, 1, -1, 1];
    const margin = Math.min(MARGIN, MARGIN_SHARE * Math.min(this.width, this.height));
    const [wide, high] = [this.width - 2 * margin, this.height - 2 * margin];
    let kx = wide / (right - left || 1);
    let ky = high / (top - bottom || 1);
    if (right === left) kx = ky;
    if (top === bottom) ky = kx;
    // Stretched no more than looks right, or than it takes to use the plot.
    const filled = (wide * high) / (this.width * this.height);
    const most = Math.max(MOST_STRETCH, (Math.max(kx / ky, ky / kx) * USED) / filled);
    kx = Math.min(kx, ky * most);
    ky = Math.min(ky, kx * most);
    this.home = { x: (left + right) / 2, y: (bottom + top) / 2, kx, ky, touched: false };
    this.view = this.home;
    this.approach();
  }

  // The view of the query and the pool, as far as it is nearer than that of all.
  approach() {
    const { home, model } = this;
    this.near = null;
    const step = model.steps[this.index];
    const groups = this.cast.filter((one) => one.kind === "pool" || one.kind === "selected").map((one) => model.groups[model.groupOf[one.n]]).filter(Boolean);
    if (!home || !groups.length || !step?.query) return;
    const xs = [step.query[0], ...groups.map(({ x }) => x)];
    const ys = [step.query[1], ...groups.map(({ y }) => y)];
    const [left, right, bottom, top] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const room = (size, reach, k) => (reach ? Math.max(1, size - 2 * NEAR_MARGIN) / (reach * k) : NEAREST_ZOOM);
    const factor = clamp(Math.min(room(this.width, right - left, home.kx), room(this.height, top - bottom, home.ky)), 1, NEAREST_ZOOM);
    if (factor >= LEAST_ZOOM) this.near = { x: (left + right) / 2, y: (bottom + top) / 2, kx: home.kx * factor, ky: home.ky * factor };
  }

  // On phase A the view goes to the query and the pool, on phase B back; where a person has zoomed it stays.
  follow(phases) {
    const { home, near, view } = this;
    if (view.touched || !home) return;
    let share = near ? ease(phases[2]) * (1 - ease(phases[3])) : 0;
    // To paint many anew in each frame takes too long.
    if (this.still.matches || this.order.length > MOST_GLYPHS) share = share >= 0.5 ? 1 : 0;
    if (!share) {
      this.view = home;
      return;
    }
    const k = (name) => home[name] * (near[name] / home[name]) ** share;
    // As it grows the middle goes with it, so that nothing swings past.
    const moved = near.kx === home.kx ? share : (1 - home.kx / k("kx")) / (1 - home.kx / near.kx);
    this.view = { x: mix(home.x, near.x, moved), y: mix(home.y, near.y, moved), kx: k("kx"), ky: k("ky"), touched: false };
  }

  at(x, y) {
    const { view } = this;
    return [this.width / 2 + (x - view.x) * view.kx, this.height / 2 - (y - view.y) * view.ky];
  }

  // Of a memory: the first copy of an intent stands at its place, the others around it, each always at the same.
  placeOf(n) {
    const group = this.model.groups[this.model.groupOf[n]];
    if (!group) return null;
    const fanned = this.fan?.members.indexOf(n) ?? -1;
    if (fanned >= 0) {
      const [x, y] = this.at(this.fan.x, this.fan.y);
      const angle = (2 * Math.PI * fanned) / this.fan.members.length - Math.PI / 2;
      return [x + this.fan.radius * Math.cos(angle), y + this.fan.radius * Math.sin(angle)];
    }
    const [x, y] = this.at(group.x, group.y);
    const i = this.model.placeIn[n];
    if (i === 0) return [x, y];
    const radius = FIRST_RING + 4.4 * Math.sqrt(i - 1);
    return [x + radius * Math.cos(i * GOLDEN), y + radius * Math.sin(i * GOLDEN)];
  }

  // --- a step -----------------------------------------------------------------------------------------------------

  setStep(index) {
    const { model } = this;
    const step = model.steps[index];
    this.index = index;
    this.state = model.before(index);
    this.summarise();
    for (const layer of [this.layer, this.links, this.names]) layer.replaceChildren();
    this.cast = [];
    const selected = new Set(step.decision?.selected ?? []);
    const written = (step.write?.operations ?? []).map((one) => one.memory).filter((n) => n !== null && n !== undefined);
    const add = (n, kind, order) => {
      if (model.groupOf[n] < 0 || this.cast.some((one) => one.n === n)) return;
      const link = kind === "new" || kind === "missed" ? null : svg("line", {}, this.links);
      this.cast.push({ n, kind, order, link, moved: model.moved(index, n), ...this.dot(n, this.layer, kind) });
    };
    for (const n of written) add(n, "new", 0);
    const candidates = step.candidates.map((one, order) => ({ ...one, order }));
    for (const one of candidates.filter((other) => other.missed)) add(one.memory, "missed", one.order);
    for (const one of candidates.filter((other) => !other.missed && !selected.has(other.memory))) add(one.memory, "pool", one.order);
    for (const one of candidates.filter((other) => selected.has(other.memory))) add(one.memory, "selected", one.order);
    for (const one of step.update?.changes ?? []) add(one.memory, "credited", candidates.length);
    this.pool = candidates.filter((one) => !one.missed).length;
    this.castScale = clamp(Math.sqrt(ROOMY_POOL / Math.max(1, this.cast.length)), 0.5);
    this.openGroup(-1);
    this.approach();
    this.dirty = true;
  }

  dot(n, parent, kind) {
    const [left, top] = this.placeOf(n);
    const group = svg("g", { class: `stage-dot stage-dot-${kind}`, ...this.model.marks(this.index, n), transform: `translate(${left} ${top})` }, parent);
    const parts = { group, ring: svg("circle", { class: "stage-ring" }, group), shape: svg("path", { class: "stage-shape" }, group) };
    if (kind !== "copy") {
      parts.label = svg("g", { class: "stage-dot-name" }, this.names);
      parts.lead = svg("line", { class: "stage-lead" }, parts.label);
      parts.name = svg("text", { class: "stage-mini", x: 10, y: 3.5 }, parts.label, this.model.names[n]);
    }
    group.addEventListener("pointerenter", () => this.on.hover(n));
    group.addEventListener("pointerleave", () => this.on.hover(null));
    group.addEventListener("click", () => this.on.pin(n));
    return parts;
  }

  // The glyphs of this state by group, and the order in which they are drawn: by weight, then by age. From one step to the
  // next few change.
  summarise() {
    const { model, size, state } = this;
    const { q, visits } = state;
    const was = this.summary;
    const make = (at) => {
      const glyph = (this.byGroup[at] = this.glyphOf(model.groups[at], at));
      // Numbers sort several times as quickly as what a function has to compare.
      this.keys[at] = glyph ? Math.round(1e5 * Math.min(glyph.weight, 1e3)) * MOST_GROUPS + at : Infinity;
    };
    if (was?.model !== model || was.size !== size) {
      this.byGroup = new Array(model.groups.length).fill(null);
      this.keys = new Float64Array(model.groups.length);
      for (let at = 0; at < model.groups.length; at++) make(at);
    } else if (was.state !== state) {
      const changed = new Set();
      for (let n = 0; n < q.length; n++) {
        if ((!Object.is(q[n], was.state.q[n]) || visits[n] !== was.state.visits[n]) && model.groupOf[n] >= 0) changed.add(model.groupOf[n]);
      }
      changed.forEach(make);
    }
    this.summary = { model, size, state };
    const sorted = this.keys.slice().sort();
    const hidden = sorted.indexOf(Infinity);
    this.order = Uint32Array.from(hidden < 0 ? sorted : sorted.subarray(0, hidden), (key) => key % MOST_GROUPS);
  }

  get glyphs() {
    return Array.from(this.order, (at) => this.byGroup[at]);
  }

  // What the glyph of an intent shows: its visible copies, by q.
  glyphOf(group, at) {
    const { q, visits } = this.state;
    const { members } = group;
    const seen = members.every((n) => !Number.isNaN(q[n])) ? members : members.filter((n) => !Number.isNaN(q[n]));
    if (!seen.length) return null;
    const [low, middle, high] = this.model.run.q;
    const scale = Math.max(middle - low, high - middle) || 1;
    let sum = 0;
    let used = 0;
    let uses = 0;
    let most = 0;
    for (const n of seen) {
      uses += visits[n];
      if (!visits[n]) continue;
      sum += q[n];
      used += 1;
      most = Math.max(most, Math.abs(q[n] - middle) / scale);
    }
    const mean = used ? sum / used : q[seen[0]];
    // Of many, each takes less room.
    const small = clamp(Math.sqrt(ROOMY_GLYPHS / this.model.groups.length), 0.55);
    const size = small * this.radius(uses);
    const outer = seen.length > 1 ? Math.max(4 + 4 * small, size + 3) : size;
    return { at, group, seen, mean, uses, size, outer, weight: most + 0.01 * Math.log2(1 + uses) };
  }

  radius(uses) {
    return this.size === "uses" ? 3.4 + Math.min(6, 1.15 * Math.log2(1 + uses)) : 4.6;
  }

  colourOf(n, q = this.state.q[n]) {
    const { model, theme } = this;
    const table = model.data.memories;
    if (this.colour === "outcome") return outcomeColour(table.outcome[n], theme);
    if (this.colour === "age") return amountColour((table.step[n] ?? 0) / model.newest, theme);
    if (this.colour === "family") return namedColour(model.families.indexOf(model.family(n)));
    if (this.colour === "run") return namedColour(model.runs.indexOf(table.run[n] ?? ""));
    return qColour(q, model.run.q, theme);
  }

  // --- the canvas -------------------------------------------------------------------------------------------------

  paint() {
    this.dirty = false;
    this.painted = { ...this.view };
    this.canvas.style.transform = "";
    // On the processor: thousands of arcs are slower by way of a graphics card that is only imitated.
    const ctx = this.canvas.getContext("2d", { willReadFrequently: true });
    ctx.setTransform(this.ratio, 0, 0, this.ratio, PAD * this.ratio, PAD * this.ratio);
    ctx.clearRect(-PAD, -PAD, this.width + 2 * PAD, this.height + 2 * PAD);
    if (this.order.length > MOST_GLYPHS) return this.paintMany(ctx);
    const { glyphs } = this;
    const counted = this.counted(glyphs);
    for (const glyph of glyphs) this.paintGlyph(ctx, glyph, counted.has(glyph));
  }

  // A drag moves the picture as far as its margins reach. Whether that is enough to show the view.
  shifted() {
    const { painted: was, view, ratio } = this;
    if (was?.kx !== view.kx || was.ky !== view.ky) return false;
    const [x, y] = [(was.x - view.x) * view.kx, (view.y - was.y) * view.ky];
    if (Math.abs(x) > PAD || Math.abs(y) > PAD) return false;
    this.canvas.style.transform = `translate(${Math.round(x * ratio) / ratio}px, ${Math.round(y * ratio) / ratio}px)`;
    return true;
  }

  // The glyphs whose count of copies has room beside them, the telling ones first; the same wherever the map is moved.
  counted(glyphs) {
    const { view } = this;
    const key = [this.order, view.kx, view.ky];
    if (this.roomy && key.every((part, i) => part === this.roomy.key[i])) return this.roomy.glyphs;
    const taken = new Map();
    const cells = (left, top, right, bottom) => {
      const found = [];
      for (let x = Math.floor(left / 6); x <= Math.floor(right / 6); x++) for (let y = Math.floor(top / 6); y <= Math.floor(bottom / 6); y++) found.push(x * 1e6 + y);
      return found;
    };
    const places = glyphs.map(({ group, outer }) => [group.x * view.kx, -group.y * view.ky, outer]);
    glyphs.forEach((glyph, i) => {
      const [x, y, r] = places[i];
      for (const cell of cells(x - r, y - r, x + r, y + r)) taken.set(cell, taken.has(cell) && taken.get(cell) !== glyph ? null : glyph);
    });
    const roomy = new Set();
    for (let i = glyphs.length - 1; i >= 0; i--) {
      const glyph = glyphs[i];
      if (glyph.seen.length < 2) continue;
      const [x, y, r] = places[i];
      const own = cells(x + r + 1, y - r - 3, x + r + 1 + 6 * String(glyph.seen.length).length, y - r + 5);
      if (own.some((cell) => taken.has(cell) && taken.get(cell) !== glyph)) continue;
      for (const cell of own) taken.set(cell, glyph);
      roomy.add(glyph);
    }
    this.roomy = { key, glyphs: roomy };
    return roomy;
  }

  dimmed(n) {
    return this.marked !== null && !this.marked.has(n);
  }

  paintGlyph(ctx, glyph, counted) {
    const { group, seen, mean, size, outer } = glyph;
    const [x, y] = this.at(group.x, group.y);
    if (Math.min(x, y) < -30 - PAD || x > this.width + PAD + 30 || y > this.height + PAD + 30) return;
    const edge = this.theme === "dark" ? "rgb(255 255 255 / 0.55)" : "rgb(30 30 40 / 0.5)";
    ctx.globalAlpha = seen.every((n) => this.dimmed(n)) ? 0.12 : 1;
    ctx.lineWidth = 0.8;
    ctx.strokeStyle = edge;
    if (seen.length === 1) {
      const n = seen[0];
      ctx.fillStyle = css(this.colourOf(n));
      shapeOn(ctx, x, y, size, this.signOf(n));
      ctx.fill();
      ctx.stroke();
    } else {
      const values = (glyph.values ??= [...seen].sort((a, b) => this.state.q[a] - this.state.q[b]));
      const slices = Math.min(values.length, MOST_SLICES);
      for (let i = 0; i < slices; i++) {
        const n = values[Math.floor(((i + 0.5) * values.length) / slices)];
        ctx.beginPath();
        ctx.arc(x, y, outer - 1.75, -Math.PI / 2 + (i / slices) * 2 * Math.PI, -Math.PI / 2 + ((i + 1) / slices) * 2 * Math.PI + 0.02);
        ctx.lineWidth = 3.5;
        ctx.strokeStyle = css(this.colourOf(n));
        ctx.stroke();
      }
      ctx.lineWidth = 0.8;
      ctx.strokeStyle = edge;
      ctx.beginPath();
      ctx.arc(x, y, outer, 0, 2 * Math.PI);
      ctx.stroke();
      ctx.beginPath();
      ctx.arc(x, y, outer - 3.5, 0, 2 * Math.PI);
      ctx.fillStyle = this.colour === "q" ? css(qColour(mean, this.model.run.q, this.theme)) : css(this.colourOf(values[0]));
      ctx.fill();
      ctx.stroke();
      ctx.font = "9px system-ui, sans-serif";
      ctx.fillStyle = this.theme === "dark" ? "#c9ccd4" : "#4a4e58";
      if (counted) ctx.fillText(String(seen.length), x + outer + 1, y - outer + 5);
    }
    ctx.globalAlpha = 1;
  }

  // Thousands: below, the mean colour of each small square, the stronger the denser; above it a few pixels each, those
  // that learned most last.
  paintMany(ctx) {
    const { view, ratio } = this;
    const [wide, high] = [this.width + 2 * PAD, this.height + 2 * PAD];
    const image = ctx.createImageData(this.canvas.width, this.canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    const { x: xs, y: ys, value, size, count } = this.packed();
    // The squares go with the memories, not with the window.
    const [shiftX, shiftY] = [view.x * view.kx, -view.y * view.ky].map((at) => at - CELL * Math.floor(at / CELL));
    const columns = Math.ceil(wide / CELL) + 1;
    const rows = Math.ceil(high / CELL) + 1;
    const sums = new Float32Array(4 * columns * rows);
    for (const i of this.order) {
      const x = wide / 2 + (xs[i] - view.x) * view.kx;
      const y = high / 2 - (ys[i] - view.y) * view.ky;
      if (x < 4 || y < 4 || x > wide - 5 || y > high - 5) continue;
      const [colour, many] = [value[i], count[i]];
      const cell = 4 * ((((y + shiftY) / CELL) | 0) * columns + (((x + shiftX) / CELL) | 0));
      sums[cell] += many * (colour & 255);
      sums[cell + 1] += many * ((colour >> 8) & 255);
      sums[cell + 2] += many * ((colour >> 16) & 255);
      sums[cell + 3] += many;
      const side = (size[i] * ratio + 0.5) | 0;
      let start = ((y * ratio - side / 2) | 0) * image.width + ((x * ratio - side / 2) | 0);
      for (let row = 0; row < side; row++, start += image.width) {
        for (let column = 0; column < side; column++) pixels[start + column] = colour;
      }
    }
    let most = 1;
    for (let at = 3; at < sums.length; at += 4) most = Math.max(most, sums[at]);
    const cells = new ImageData(columns, rows);
    const strength = this.marked ? 60 : 170;
    for (let at = 0; at < sums.length; at += 4) {
      const many = sums[at + 3];
      if (many) cells.data.set([sums[at] / many, sums[at + 1] / many, sums[at + 2] / many, 25 + strength * Math.sqrt(many / most)], at);
    }
    ctx.drawImage(this.sheet("density", cells), -PAD - shiftX, -PAD - shiftY, columns * CELL, rows * CELL);
    ctx.drawImage(this.sheet("points", image), -PAD, -PAD, wide, high);
  }

  // Pixels as something that can be drawn over others.
  sheet(name, image) {
    const sheet = ((this.sheets ??= {})[name] ??= document.createElement("canvas"));
    if (sheet.width !== image.width || sheet.height !== image.height) [sheet.width, sheet.height] = [image.width, image.height];
    sheet.getContext("2d", { willReadFrequently: true }).putImageData(image, 0, 0);
    return sheet;
  }

  // Places, colours and sizes of all glyphs as columns, by group; those that have not changed stay.
  packed() {
    const { model, byGroup } = this;
    const key = [model, this.colour, this.marked, this.theme, this.size];
    if (!this.columns || key.some((part, i) => part !== this.columns.key[i])) {
      const n = byGroup.length;
      this.columns = { key, of: new Array(n).fill(null), x: new Float64Array(n), y: new Float64Array(n), value: new Uint32Array(n), size: new Uint8Array(n), count: new Uint32Array(n) };
    }
    const { of, x, y, value, size, count } = this.columns;
    const crowded = this.order.length > CROWDED;
    const { q } = model.run;
    byGroup.forEach((glyph, at) => {
      if (!glyph || of[at] === glyph) return;
      of[at] = glyph;
      const first = glyph.seen[0];
      const colour = this.colour === "q" ? qColour(glyph.mean, q, this.theme) : this.colourOf(first);
      const alpha = this.dimmed(first) ? 22 : glyph.uses ? 255 : 120;
      const more = this.size === "uses" ? (glyph.uses ? 1 : 0) + (glyph.weight > 0.4 ? 1 : 0) : 1;
      x[at] = glyph.group.x;
      y[at] = glyph.group.y;
      value[at] = (alpha << 24) | (colour[2] << 16) | (colour[1] << 8) | colour[0];
      size[at] = crowded ? 1 + (more > 1 ? 1 : 0) : 2 + more;
      count[at] = glyph.seen.length;
    });
    return this.columns;
  }

  signOf(n, q = this.state.q[n], visits = this.state.visits[n]) {
    const middle = this.model.run.q[1];
    return !visits || q === middle || Number.isNaN(q) ? 0 : q > middle ? 1 : -1;
  }

  // --- what moves -------------------------------------------------------------------------------------------------

  // `phases[p]` is how much of phase p has run, from 0 to 1.
  render(phases, lit) {
    this.follow(phases);
    const { model, view } = this;
    const shown = [...phases, ...lit, view.x, view.y, view.kx, view.ky].join();
    if (!this.dirty && !this.stale && this.drawn === shown) return;
    if (this.dirty || !this.shifted()) this.paint();
    [this.drawn, this.stale] = [shown, false];
    const step = model.steps[this.index];
    const query = step.query ? this.at(...step.query) : null;
    const landed = phases[1] >= 1;
    set(this.star, { transform: query ? `translate(${query[0]} ${query[1]})` : "", opacity: query && landed ? 1 : 0 });
    for (const one of this.cast) {
      const [x, y] = this.placeOf(one.n);
      const isLit = lit.has(one.n);
      const come = clamp(phases[2] * (this.pool + 3) - one.order, 0, 1);
      const share = ease(clamp((phases[6] - 0.35) / 0.65));
      const q = mix(one.moved.before, one.moved.after, share);
      const visits = share > 0.5 ? one.moved.visitsAfter : one.moved.visits;
      const chosen = one.kind === "selected" || one.kind === "credited";
      const size = one.kind === "new" ? mix(0, query && Math.hypot(x - query[0], y - query[1]) < STAR_SIZE ? STAR_SIZE + 2 : 6, ease(phases[7])) : this.castScale * this.radius(visits) * (chosen ? 1.25 : 1) * (1 + (one.moved.moves ? 0.5 * Math.sin(Math.PI * share) : 0));
      const ring = one.kind === "missed" ? 0.45 * phases[2] : one.kind === "new" ? phases[7] : come;
      const strong = chosen ? phases[3] : 0;
      const where = {
        transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})`,
        opacity: one.kind === "new" && !phases[7] ? 0 : this.dimmed(one.n) && !isLit ? 0.2 : 1,
      };
      set(one.label, { ...where, class: isLit ? "stage-dot-name stage-lit" : "stage-dot-name" });
      set(one.group, {
        ...where,
        "pointer-events": one.kind === "new" && !phases[7] ? "none" : "auto",
      });
      const ownQ = one.kind === "new" ? model.now(this.index, one.n) : q;
      set(one.shape, { d: shapePath(size, this.signOf(one.n, q, visits)), fill: css(this.colourOf(one.n, Number.isNaN(ownQ) ? model.run.q[1] : ownQ)) });
      set(one.ring, { r: size + this.castScale * (3 + 1.5 * strong), opacity: ring, "stroke-width": 1.2 + 1.6 * strong });
      Object.assign(one, { isLit, size, named: isLit ? 1 : one.kind === "new" ? phases[7] : strong });
      if (one.link) {
        const shown = query && landed ? come * (chosen ? 0.75 : 0.35 * (1 - 0.75 * phases[3])) : 0;
        set(one.link, { x1: query?.[0] ?? 0, y1: query?.[1] ?? 0, x2: x, y2: y, opacity: shown });
      }
    }
    this.setNames();
    for (const node of this.opened.children) {
      const n = model.numbers.get(node.dataset.memory);
      const [x, y] = this.placeOf(n);
      set(node, { transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})` });
    }
  }

  // Each name stands beside its dot, or as near as nothing else stands, with a line to it; what is lit comes first.
  setNames() {
    const dots = this.cast.filter((one) => one.named).map((one) => [...this.placeOf(one.n), one.size + 4.5]);
    const { query } = this.model.steps[this.index];
    const star = query && this.star.getAttribute("opacity") !== "0" ? [[...this.at(...query), STAR_SIZE]] : [];
    const boxes = (places) => places.map(([x, y, r]) => [x - r, y - r, x + r, y + r]);
    const taken = [...this.countBoxes(), ...boxes([...dots, ...star])];
    // What has no name is kept free where that is possible.
    const others = boxes(this.cast.filter((one) => !one.named).map((one) => [...this.placeOf(one.n), one.size]));
    const rank = (one) => (one.isLit ? 0 : one.kind === "new" ? 1 : 2);
    for (const one of [...this.cast].sort((a, b) => rank(a) - rank(b))) {
      const [x, y] = this.placeOf(one.n);
      const place = (shift, right) => {
        const anchor = right ? "start" : "end";
        const at = right ? one.size + 5 : -one.size - 5;
        const box = boxOf(one.name.textContent, { x: x + at, y: y + 3.5 + shift, anchor, weight: 650 });
        return { boxes: [box], shift, at, anchor };
      };
      const places = one.named ? NAME_SHIFTS.flatMap((shift) => [place(shift, true), place(shift, false)]) : [];
      const frame = [0, 0, this.width, this.height];
      const free = firstFree(places, [...taken, ...others], frame);
      if (free) taken.push(...free.boxes);
      const found = free ?? firstFree(places, taken, frame);
      const { at, shift, anchor } = found ?? place(0, true);
      set(one.name, { opacity: one.named, x: at, y: 3.5 + shift, "text-anchor": anchor, display: found ? "inline" : "none" });
      set(one.lead, { opacity: one.named, x2: at, y2: shift, display: found && Math.abs(shift) > 13 ? "inline" : "none" });
    }
  }

  // The boxes of the counts of copies on the canvas.
  countBoxes() {
    if (this.order.length > MOST_GLYPHS) return [];
    return [...this.counted(this.glyphs)].map(({ group, outer, seen }) => {
      const [x, y] = this.at(group.x, group.y);
      return boxOf(String(seen.length), { x: x + outer + 1, y: y - outer + 5, size: 9 });
    });
  }

  // --- copies opened into a ring, hints, zoom, lasso ----------------------------------------------------------------

  openGroup(at) {
    if (at === this.open && at >= 0) return;
    this.open = at;
    this.stale = true;
    this.shown = null;
    this.fan = null;
    this.opened.replaceChildren();
    const glyph = this.byGroup?.[at];
    if (!glyph) return;
    const members = glyph.seen.length < 2 ? this.touching(glyph) : glyph.seen;
    if (members.length < 2) return;
    if (glyph.seen.length < 2) this.fan = { ...glyph.group, members, radius: Math.max(17, 2.6 * members.length) };
    const already = new Set(this.cast.map((one) => one.n));
    for (const n of members) {
      if (already.has(n)) continue;
      const { shape, ring } = this.dot(n, this.opened, "copy");
      set(shape, { d: shapePath(4, this.signOf(n)), fill: css(this.colourOf(n)) });
      set(ring, { r: 7, opacity: 0.5 });
    }
  }

  // The memories of glyphs that lie where one does; none where they are more than a hand can tell apart.
  touching(glyph) {
    const [x, y] = this.at(glyph.group.x, glyph.group.y);
    const found = [];
    for (const other of this.byGroup) {
      if (!other) continue;
      const [atX, atY] = this.at(other.group.x, other.group.y);
      if (Math.hypot(atX - x, atY - y) > TOUCHING) continue;
      found.push(...other.seen);
      if (found.length > MOST_FANNED) return [];
    }
    return found;
  }

  // The memories that lie where a glyph does, in a ring around it.
  fanOut(glyph, x, y) {
    this.open = -1;
    this.openGroup(glyph.at);
    this.on.redraw();
    this.tooltip(`${this.fan.members.length} memories at one place`, x, y);
  }

  // A memory that the step is not about, lit from elsewhere: it gets an element for as long.
  show(n) {
    if (n === null || this.shown === n || this.fan?.members.includes(n) || this.cast.some((one) => one.n === n) || this.model.groupOf[n] < 0) return;
    const at = this.model.groupOf[n];
    if (this.byGroup[at]?.seen.length > 1) return this.openGroup(at);
    this.openGroup(-1);
    this.shown = n;
    this.stale = true;
    const { shape, ring } = this.dot(n, this.opened, "copy");
    set(shape, { d: shapePath(5, this.signOf(n)), fill: css(this.colourOf(n)) });
    set(ring, { r: 8, opacity: 1 });
  }

  nearest(x, y) {
    let best = null;
    let least = Infinity;
    // In the order in which they lie in memory.
    for (const glyph of this.byGroup ?? []) {
      if (!glyph) continue;
      const dx = this.width / 2 + (glyph.group.x - this.view.x) * this.view.kx - x;
      const dy = this.height / 2 - (glyph.group.y - this.view.y) * this.view.ky - y;
      const apart = dx * dx + dy * dy;
      if (apart > least || (apart === least && glyph.weight < best.weight)) continue;
      best = glyph;
      least = apart;
    }
    const reach = best?.at === this.open ? FIRST_RING + 6 + 4.4 * Math.sqrt(best.seen.length) : 12;
    return best && least <= reach * reach ? best : null;
  }

  listen() {
    const where = (event) => {
      const box = this.box.getBoundingClientRect();
      const scale = this.width / (box.width || this.width);
      return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    };
    this.box.addEventListener("pointermove", (event) => {
      const [x, y] = where(event);
      if (this.drag) return this.dragged(x, y);
      const dot = event.target.closest?.("[data-memory]");
      if (dot) {
        const n = this.model.numbers.get(dot.dataset.memory);
        const own = this.byGroup[this.model.groupOf[n]];
        if (!this.fan && own?.seen.length === 1 && this.touching(own).length > 1) return this.fanOut(own, x, y);
        return this.hint(dot.dataset.memory, x, y);
      }
      if (this.fan) {
        const [fanX, fanY] = this.at(this.fan.x, this.fan.y);
        if (Math.hypot(x - fanX, y - fanY) <= this.fan.radius + 10) return;
      }
      const glyph = this.nearest(x, y);
      if (!glyph) {
        this.tip.hidden = true;
        this.openGroup(-1);
        return this.on.hover(null);
      }
      if (glyph.seen.length === 1) {
        if (this.touching(glyph).length > 1) return this.fanOut(glyph, x, y);
        this.on.hover(glyph.seen[0]);
        return this.hint(this.model.ids[glyph.seen[0]], x, y);
      }
      this.openGroup(glyph.at);
      this.on.redraw();
      const values = glyph.seen.map((n) => this.state.q[n]);
      this.tooltip(`${glyph.seen.length} copies · q ${signed(Math.min(...values))} … ${signed(Math.max(...values))}\n${shortened(this.model.intent(glyph.seen[0]), 80)}`, x, y);
    });
    this.box.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
      this.armed = false;
      if (!this.drag) this.openGroup(-1);
      this.on.hover(null);
    });
    this.box.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.armed = true;
      const [x, y] = where(event);
      this.drag = { x, y, view: { ...this.view }, lasso: this.lassoing || event.shiftKey ? [[x, y]] : null, far: false };
      this.tip.hidden = true;
    });
    const up = (event) => {
      const { drag } = this;
      this.drag = null;
      if (!drag) return;
      if (drag.lasso?.length > 3) return this.taken(drag.lasso);
      set(this.lassoed, { d: "" });
      if (drag.far || event.target.closest?.("[data-memory]")) return;
      const glyph = this.nearest(...where(event));
      // Of copies the oldest, which stands in their middle.
      this.on.pin(glyph ? glyph.seen[0] : null);
    };
    this.box.addEventListener("pointerup", up);
    this.box.addEventListener("pointercancel", () => (this.drag = null));
    this.box.addEventListener("wheel", (event) => {
      // A page that scrolls goes on scrolling until the map is pressed.
      if (!this.armed && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * 0.0016), ...where(event));
    }, { passive: false });
    this.box.addEventListener("dblclick", () => this.reset());
  }

  // Sizes follow the uses of a memory, or are all the same.
  sizeBy(what) {
    this.size = what;
    this.summarise();
    this.dirty = true;
    this.on.redraw();
  }

  reset() {
    this.fit();
    this.on.redraw();
  }

  dragged(x, y) {
    const { drag } = this;
    drag.far ||= Math.hypot(x - drag.x, y - drag.y) > 4;
    if (!drag.far) return;
    if (drag.lasso) {
      drag.lasso.push([x, y]);
      return set(this.lassoed, { d: `M${drag.lasso.map((point) => point.map((value) => value.toFixed(1)).join(",")).join("L")}Z` });
    }
    this.view = { ...drag.view, x: drag.view.x - (x - drag.x) / drag.view.kx, y: drag.view.y + (y - drag.y) / drag.view.ky, touched: true };
    this.on.redraw();
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const { view } = this;
    const [px, py] = [view.x + (x - this.width / 2) / view.kx, view.y - (y - this.height / 2) / view.ky];
    const [kx, ky] = [view.kx * factor, view.ky * factor];
    this.view = { x: px - (x - this.width / 2) / kx, y: py + (y - this.height / 2) / ky, kx, ky, touched: true };
    this.on.redraw();
  }

  taken(polygon) {
    const inside = [];
    for (const { group, seen } of this.glyphs) if (within(...this.at(group.x, group.y), polygon)) inside.push(...seen);
    set(this.lassoed, { d: "" });
    this.mark(inside.length ? new Set(inside) : null);
    this.on.select(inside);
  }

  mark(numbers) {
    this.marked = numbers;
    this.dirty = true;
    this.on.redraw();
  }

  hint(id, x, y) {
    const n = this.model.numbers.get(id);
    const q = this.state.q[n];
    const worth = Number.isNaN(q) ? "" : ` · q ${signed(q)} · ${this.state.visits[n]} uses`;
    this.tooltip(`${this.model.labels[n]}${worth}\n${shortened(this.model.intent(n), 80)}`, x, y);
  }

  tooltip(text, x, y) {
    this.tip.hidden = false;
    if (this.tip.textContent !== text) this.tip.textContent = text;
    const left = clamp(x + 14, 0, Math.max(0, this.width - 224));
    Object.assign(this.tip.style, { left: `${left}px`, top: `${y > this.height - 60 ? y - 52 : y + 16}px` });
  }

  // Names and colours of what the glyphs are coloured by; q has its axis.
  legend() {
    const { model, theme } = this;
    if (this.colour === "outcome") return ["success", "failure", "unrated"].map((name) => [name, outcomeColour(name, theme)]);
    if (this.colour === "age") return [["old", amountColour(0, theme)], ["", amountColour(0.5, theme)], ["new", amountColour(1, theme)]];
    const names = { family: model.families, run: model.runs }[this.colour];
    if (!names) return [];
    const shown = names.slice(0, NAMED.length - 1).map((name, at) => [name || "none", namedColour(at)]);
    return names.length > shown.length ? [...shown, [`${names.length - shown.length} more`, namedColour(NAMED.length)]] : shown;
  }
}

function shapeOn(ctx, x, y, size, sign) {
  ctx.beginPath();
  if (!sign) return ctx.arc(x, y, size, 0, 2 * Math.PI);
  const [tip, base, side] = [size * 1.25, size * 0.75, size * 1.1];
  ctx.moveTo(x, y - sign * tip);
  ctx.lineTo(x + side, y + sign * base);
  ctx.lineTo(x - side, y + sign * base);
  ctx.closePath();
}

// A triangle up for a q above the middle, down for one below, a circle for what was never updated.
function shapePath(size, sign) {
  const r = Math.max(0, size).toFixed(2);
  if (!sign) return `M-${r},0a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 -${2 * r},0Z`;
  const [tip, base, side] = [size * 1.25, size * 0.75, size * 1.1].map((value) => value * sign);
  return `M0,${-tip}L${side},${base}L${-side},${base}Z`;
}

function within(x, y, polygon) {
  let inside = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
    const [[ax, ay], [bx, by]] = [polygon[i], polygon[j]];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}
