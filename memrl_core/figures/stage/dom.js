// Small means that all parts of the stage share. Texts only ever become text nodes.

const SVG = "http://www.w3.org/2000/svg";
export const MINUS = "\u2212";

export function el(tag, className = "", parent = null, text = null) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== null) made.textContent = text;
  parent?.append(made);
  return made;
}

export function svg(tag, attributes = {}, parent = null, text = null) {
  const made = document.createElementNS(SVG, tag);
  set(made, attributes);
  if (text !== null) made.textContent = text;
  parent?.append(made);
  return made;
}

export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const written = String(value);
    if (node.getAttribute(name) !== written) node.setAttribute(name, written);
  }
  return node;
}

export const clamp = (value, low = 0, high = 1) => Math.min(high, Math.max(low, value));
export const mix = (a, b, share) => a + (b - a) * share;
export const ease = (share) => (share < 0.5 ? 2 * share * share : 1 - (2 - 2 * share) ** 2 / 2);

// As memrl_core/numerals.py writes numbers.
export function fixed(value, places = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const text = value.toFixed(places);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", MINUS);
}

export function signed(value, places = 3) {
  const text = fixed(value, places);
  return text.startsWith(MINUS) || text === "–" ? text : `+${text}`;
}

export function shortened(text, longest) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length <= longest ? line : `${line.slice(0, longest - 1).trimEnd()}…`;
}

// Of a name the end, which tells long ones apart sooner than their beginning.
// A name in little room: of a word and a number the initial and the number, of others the beginning and the end.
export function ending(name, longest) {
  const short = name.length <= longest ? name : name.replace(/^(\p{L})\p{L}*[-_]0*(\d+)$/u, "$1$2");
  if (short.length <= longest) return short;
  const head = Math.floor((longest - 1) / 2);
  return `${short.slice(0, head)}…${short.slice(head + 1 - longest)}`;
}

// --- labels ----------------------------------------------------------------------------------------------------------

const ruler = document.createElement("canvas").getContext("2d");
const measured = new Map();

// Width of a label and its reach above and below its baseline, in pixels. A canvas measures without a layout of the page.
function measure(text, size, weight) {
  const font = `${weight} ${size}px system-ui, sans-serif`;
  const key = font + text;
  if (!measured.has(key)) {
    if (measured.size > 5000) measured.clear();
    ruler.font = font;
    const { width, fontBoundingBoxAscent: above, fontBoundingBoxDescent: below } = ruler.measureText(text);
    measured.set(key, { width, above, below });
  }
  return measured.get(key);
}

// The box of a label whose baseline is at (x, y): [left, top, right, bottom].
export function boxOf(text, { x, y, anchor = "start", size = 11.5, weight = 400 }) {
  const { width, above, below } = measure(text, size, weight);
  const left = x - { start: 0, middle: 0.5, end: 1 }[anchor] * width;
  return [left, y - above, left + width, y + below];
}

// A text as lines of at most so many pixels, broken between words; a word that is longer has a line of its own.
export function linesOf(text, width, size = 11.5) {
  const lines = [""];
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && measure(longer, size, 400).width > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

// The first place whose boxes lie within a frame and on nothing that is taken; they are taken then. None: undefined.
export function firstFree(places, taken, [left, top, right, bottom]) {
  for (const place of places) {
    const fits = place.boxes.every((box) => box[0] >= left && box[1] >= top && box[2] <= right && box[3] <= bottom && !taken.some((other) => overlap(box, other)));
    if (!fits) continue;
    taken.push(...place.boxes);
    return place;
  }
}

// --- colours ---------------------------------------------------------------------------------------------------------

// Orange below the middle of q, purple above it (ColorBrewer's PuOr): safe for colour-blind people, in both themes.
const Q_COLOURS = {
  light: ["#b35806", "#e08a2c", "#b9b6c2", "#8a7fbd", "#542788"],
  dark: ["#ffab4a", "#c98032", "#6d6b78", "#9385d6", "#cbbcff"],
};
const AMOUNTS = {
  light: ["#c5d86d", "#5ec28a", "#2a9a96", "#34648d", "#440154"],
  dark: ["#414487", "#2a788e", "#22a884", "#7ad151", "#fde725"],
};
const OUTCOMES = {
  light: { success: "#0072b2", failure: "#d55e00", unrated: "#8a8f98" },
  dark: { success: "#56b4e9", failure: "#f0803c", unrated: "#8a8f98" },
};
// Okabe and Ito's.
export const NAMED = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#a59b00", "#8a8f98"];

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const SHADES = 512;
const SCALES = new Map();

// A colour of a scale, of which all shades are made once: a map has a hundred thousand to choose. What is not known has
// the middle one.
function along(colours, share) {
  let scale = SCALES.get(colours);
  if (!scale) {
    const ends = colours.map(rgb);
    scale = Array.from({ length: SHADES + 1 }, (_, shade) => {
      const at = (shade / SHADES) * (ends.length - 1);
      const low = Math.min(Math.floor(at), ends.length - 2);
      return ends[low].map((part, i) => Math.round(mix(part, ends[low + 1][i], at - low)));
    });
    SCALES.set(colours, scale);
  }
  return scale[Math.round(clamp(Number.isNaN(share) ? 0.5 : share) * SHADES)];
}

export const qColour = (q, [low, middle, high], theme) =>
  along(Q_COLOURS[theme], q < middle ? (0.5 * (q - low)) / (middle - low || 1) : 0.5 + (0.5 * (q - middle)) / (high - middle || 1));
export const amountColour = (share, theme) => along(AMOUNTS[theme], share);
export const outcomeColour = (outcome, theme) => rgb(OUTCOMES[theme][outcome] ?? OUTCOMES[theme].unrated);
export const namedColour = (at) => rgb(NAMED[Math.min(at, NAMED.length - 1)]);
export const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

// Whether an element stands on a dark ground.
export function themeOf(element) {
  for (let at = element; at; at = at.parentElement ?? at.getRootNode().host) {
    const parts = getComputedStyle(at).backgroundColor.match(/[\d.]+/g)?.map(Number);
    if (parts && (parts[3] ?? 1) > 0.5) return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] < 128 ? "dark" : "light";
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}
