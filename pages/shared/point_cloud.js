// The points of a large map, painted on a canvas below Plotly's marks: as many SVG nodes, or WebGL without a graphics
// card, would stand still under the mouse.

const SHAPES = ["circle", "triangle-up", "triangle-down"];
const NO_SHADE = 255;
const GREY = "rgb(140, 140, 150)";
const NEAR = 9;
const LEVELS = 256;
const clouds = (window.memrlClouds = window.memrlClouds || {});

function unpacked(text, Kind) {
  return new Kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}

function shapeOf(q, visits, middle) {
  return visits === 0 || q === middle ? 0 : q > middle ? 1 : 2;
}

// Room for what a step adds, so that the arrays need not be made anew for each.
function withRoom(values, Kind, room) {
  const grown = new Kind(values.length + room);
  grown.set(values);
  return grown;
}

function takeCloud(slot, sent) {
  if (clouds[slot]?.key === sent.key) return;
  const kinds = { x: Float32Array, y: Float32Array, q: Float32Array, visits: Uint16Array, shades: Uint8Array };
  const first = {};
  for (const [name, Kind] of Object.entries(kinds)) first[name] = unpacked(sent[name], Kind);
  const { labels, intents } = sent;
  const names = { labels, intents, of: unpacked(sent.intent_of, Uint32Array), added: [] };
  clouds[slot] = { key: sent.key, palette: sent.palette, middle: sent.middle, first, kinds, names, version: 0 };
}

function changedCloud(slot, key, changes) {
  const cloud = clouds[slot];
  if (!cloud || cloud.key !== key) return null;
  const told = JSON.stringify(changes);
  if (cloud.told === told) return cloud;
  const { rows, added, ...columns } = changes;
  cloud.names.added = added;
  const size = cloud.first.x.length;
  cloud.count = Math.max(size, rows.length ? rows[rows.length - 1] + 1 : 0);
  for (const [name, Kind] of Object.entries(cloud.kinds)) {
    cloud[name] = withRoom(cloud.first[name], Kind, cloud.count - size);
    rows.forEach((row, at) => (cloud[name][row] = columns[name][at]));
  }
  cloud.told = told;
  cloud.version += 1;
  cloud.order = drawingOrder(cloud);
  return cloud;
}

// The last is on top: what was never used covers nothing that was, nor a weak q a strong one. In levels, because a sort
// of a large cloud would take longer than to paint it.
function drawingOrder({ q, visits, count, middle }) {
  let widest = 1e-9;
  for (let row = 0; row < count; row += 1) widest = Math.max(widest, Math.abs(q[row] - middle));
  const level = (row) => (visits[row] ? 1 + Math.round((LEVELS - 2) * (Math.abs(q[row] - middle) / widest)) : 0);
  const ends = new Uint32Array(LEVELS + 1);
  for (let row = 0; row < count; row += 1) ends[level(row) + 1] += 1;
  for (let at = 1; at <= LEVELS; at += 1) ends[at] += ends[at - 1];
  const order = new Uint32Array(count);
  for (let row = 0; row < count; row += 1) order[ends[level(row)]++] = row;
  return order;
}

// The label of a point and its intent; nothing in a cloud that is too large to be sent with names.
function nameOf({ names: { labels, intents, of, added }, first }, row) {
  const sent = first.x.length;
  if (row >= sent) return added[row - sent] ?? [];
  return row < labels.length ? [labels[row], intents[of[row]]] : [];
}

function sprite(shape, colour, radius) {
  const half = Math.ceil(radius + 1);
  const side = 2 * half + 1;
  const small = Object.assign(document.createElement("canvas"), { width: side, height: side });
  const pen = small.getContext("2d", { willReadFrequently: true });
  const [middle, wide, high] = [half + 0.5, radius * 1.1, radius * 0.95];
  pen.beginPath();
  if (shape === "circle") pen.arc(middle, middle, radius, 0, 2 * Math.PI);
  else {
    const up = shape === "triangle-up" ? 1 : -1;
    pen.moveTo(middle, middle - up * high * 1.1);
    pen.lineTo(middle + wide, middle + up * high * 0.8);
    pen.lineTo(middle - wide, middle + up * high * 0.8);
    pen.closePath();
  }
  pen.fillStyle = colour;
  pen.fill();
  if (radius >= 3) {
    pen.strokeStyle = "rgba(128, 128, 128, 0.8)";
    pen.stroke();
  }
  const { data } = pen.getImageData(0, 0, side, side);
  const dots = [];
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] < 24) continue;
    const [row, column] = [Math.floor(at / 4 / side) - half, ((at / 4) % side) - half];
    dots.push([row, column, data[at], data[at + 1], data[at + 2], data[at + 3]]);
  }
  return dots;
}

function radiusFor(count) {
  return count <= 600 ? 5.5 : count <= 4000 ? 4 : count <= 20000 ? 2.5 : 1.5;
}

// Where the points lie on the canvas at this moment of Plotly's axes.
function lens(host, ratio) {
  const { xaxis, yaxis } = host._fullLayout;
  const [left, right] = xaxis.range;
  const [low, high] = yaxis.range;
  const width = Math.round(xaxis._length * ratio);
  const height = Math.round(yaxis._length * ratio);
  return {
    width,
    height,
    place: [xaxis._offset, yaxis._offset, xaxis._length, yaxis._length],
    xBy: width / (right - left),
    yBy: -height / (high - low),
    x0: (-left * width) / (right - left),
    y0: (high * height) / (high - low),
  };
}

function paint(canvas, cloud, seen, ratio) {
  const { width, height, xBy, yBy, x0, y0 } = seen;
  const { x, y, q, visits, shades, count, middle, palette, order } = cloud;
  let inside = 0;
  for (let row = 0; row < count; row += 1) {
    const [px, py] = [x[row] * xBy + x0, y[row] * yBy + y0];
    if (px >= 0 && px < width && py >= 0 && py < height) inside += 1;
  }
  const radius = radiusFor(inside) * ratio;
  if (cloud.radius !== radius) {
    cloud.radius = radius;
    cloud.sprites = new Map();
  }
  const margin = Math.ceil(radius + 1);
  const stride = width + 2 * margin;
  const picture = new ImageData(stride, height + 2 * margin);
  const bytes = picture.data;
  for (const row of order) {
    const px = Math.floor(x[row] * xBy + x0);
    const py = Math.floor(y[row] * yBy + y0);
    if (px < 0 || px >= width || py < 0 || py >= height) continue;
    const look = shapeOf(q[row], visits[row], middle) * 256 + shades[row];
    let drawn = cloud.sprites.get(look);
    if (!drawn || drawn.stride !== stride) {
      const colour = shades[row] === NO_SHADE ? GREY : palette[shades[row]];
      const dots = sprite(SHAPES[look >> 8], colour, radius);
      drawn = Int32Array.from(dots.flatMap(([dy, dx, r, g, b, a]) => [4 * (dy * stride + dx), r, g, b, a]));
      drawn.stride = stride;
      cloud.sprites.set(look, drawn);
    }
    const centre = 4 * ((py + margin) * stride + px + margin);
    for (let at = 0; at < drawn.length; at += 5) {
      const to = centre + drawn[at];
      const cover = drawn[at + 4];
      if (cover > 250 || bytes[to + 3] === 0) {
        bytes[to] = drawn[at + 1];
        bytes[to + 1] = drawn[at + 2];
        bytes[to + 2] = drawn[at + 3];
        bytes[to + 3] = cover;
      } else {
        bytes[to] += ((drawn[at + 1] - bytes[to]) * cover) >> 8;
        bytes[to + 1] += ((drawn[at + 2] - bytes[to + 1]) * cover) >> 8;
        bytes[to + 2] += ((drawn[at + 3] - bytes[to + 2]) * cover) >> 8;
        bytes[to + 3] = Math.max(cover, bytes[to + 3]);
      }
    }
  }
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  else canvas.getContext("2d").clearRect(0, 0, width, height);
  canvas.getContext("2d").putImageData(picture, -margin, -margin);
}

// Paint where Plotly's axes, the cloud or the size are others than before.
function repaint(canvas, host) {
  const cloud = host.cloud;
  canvas.hidden = !cloud;
  if (!cloud || !host._fullLayout?.xaxis?._length) return;
  const ratio = window.devicePixelRatio || 1;
  const seen = lens(host, ratio);
  const now = [cloud.key, cloud.version, ...Object.values(seen)].join();
  if (now === canvas.showing) return;
  canvas.showing = now;
  const [left, top, width, height] = seen.place;
  Object.assign(canvas.style, { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });
  paint(canvas, cloud, seen, ratio);
  canvas.dataset.painted = String(Number(canvas.dataset.painted || 0) + 1);
}

// Look in every frame whether there is something to paint.
function follow(canvas, host) {
  if (host.followed) return;
  host.followed = true;
  const look = () => {
    if (!host.isConnected) {
      host.followed = false;
      return;
    }
    repaint(canvas, host);
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}

// The row of the point nearest to the mouse, -1 when none is near.
function nearest(canvas, host, event) {
  const { xBy, yBy, x0, y0 } = lens(host, 1);
  const box = canvas.getBoundingClientRect();
  const [mx, my] = [event.clientX - box.left, event.clientY - box.top];
  let [found, best] = [-1, NEAR * NEAR];
  const { x, y, order } = host.cloud;
  // Of those in one place the one on top.
  for (const row of order) {
    const [dx, dy] = [x[row] * xBy + x0 - mx, y[row] * yBy + y0 - my];
    const away = dx * dx + dy * dy;
    if (away <= best) [found, best] = [row, away];
  }
  return found;
}

window.memrlCloud = { changedCloud, follow, nameOf, nearest, repaint };

export default function ({ data, setStateValue }) {
  takeCloud(data.slot, data.cloud);
  setStateValue("taken", data.cloud.key);
}
