// One Plotly chart that is updated in place: zoom, camera and node survive every rerun of the page.

// Plotly offers a button that sends the chart to a service of its makers, unless it is told not to.
const CONFIG = {
  displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: "",
  modeBarButtonsToRemove: ["lasso2d", "select2d"],
};

const GRID = "rgba(140, 140, 150, 0.25)";

function once(found) {
  return new Promise((resolve) => {
    const look = () => {
      const there = found();
      if (there) resolve(there);
      else setTimeout(look, 20);
    };
    look();
  });
}

// The points of a large map come by themselves and only once; here is what has changed in them since.
function cloudOf(told) {
  return told ? once(() => window.memrlCloud?.changedCloud(told.slot, told.key, told.changes)) : null;
}

// A large map is what a page is watched on: other charts are drawn after the frame that shows it.
function afterTheMap(host) {
  const map = document.querySelector(".map-cloud:not([hidden])");
  if (!map || map.parentElement.contains(host)) return null;
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}

// Plotly takes an array for changed unless it is the very same one: what is as it was need not be drawn again.
function asDrawn(host, traces) {
  const told = traces.map((trace) => JSON.stringify(trace));
  const kept = traces.map((trace, at) => {
    return told[at] === host.told?.[at] ? { ...host.traces[at], visible: trace.visible } : trace;
  });
  Object.assign(host, { told, traces: kept });
  return kept;
}

// What is left of a layout when its upright lines and the names above them may stand anywhere.
function withoutPlaces(layout) {
  const shapes = (layout.shapes || []).map((shape) => (shape.x0 === shape.x1 ? { ...shape, x0: 0, x1: 0 } : shape));
  const annotations = (layout.annotations || []).map((name) => ({ ...name, x: 0, text: "" }));
  return JSON.stringify({ ...layout, shapes, annotations });
}

// Plotly draws everything again for a mark that has moved. Where nothing else has changed the marks are moved here, and
// Plotly finds them at their new places when it draws next. False where it has to draw now.
function onlyMoved(host, traces, layout, image) {
  const [rest, told] = [withoutPlaces(layout) + JSON.stringify(image), traces.map((trace) => JSON.stringify(trace))];
  const known = host.rest === rest && told.length === host.told?.length && told.every((one, at) => one === host.told[at]);
  host.rest = rest;
  const axis = host._fullLayout?.xaxis;
  const [low, high] = axis?.range || [];
  const [shapes, names] = [layout.shapes || [], layout.annotations || []];
  const shown = (x) => typeof x === "number" && x >= low && x <= high;
  if (!known || !shapes.every((shape) => shown(shape.x0)) || !names.every((name) => shown(name.x))) return false;
  const lines = shapes.map((_, at) => host.querySelector(`.shapelayer path[data-index="${at}"]`));
  const words = names.map((_, at) => host.querySelector(`.annotation[data-index="${at}"]`));
  if (![...lines, ...words].every(Boolean)) return false;
  const pixel = (x) => axis._offset + axis.d2p(x);
  shapes.forEach((shape, at) => {
    const path = lines[at].getAttribute("d").replace(/([ML])[-\d.e]+,/g, `$1${pixel(shape.x0)},`);
    if (shape.x0 === shape.x1) lines[at].setAttribute("d", path);
  });
  names.forEach((name, at) => {
    const text = words[at].querySelector("text");
    text.textContent = text.dataset.unformatted = name.text;
    words[at].setAttribute("transform", `translate(${pixel(name.x) - pixel(host._fullLayout.annotations[at].x)},0)`);
  });
  Object.assign(host.layout, { shapes, annotations: names });
  return true;
}

// Plotly's own camera does not see the canvas. Made once: with another function in its settings Plotly starts afresh.
function camera(Plotly, host, canvas) {
  const click = () => {
    const [left, bottom] = [{ xref: "paper", x: 0 }, { yref: "paper", y: 1 }];
    const points = { ...left, ...bottom, sizex: 1, sizey: 1, sizing: "stretch", layer: "below", source: canvas.toDataURL() };
    const layout = { ...host.layout, images: [points], width: host.clientWidth };
    Plotly.downloadImage({ data: host.data, layout }, { ...host.image, width: host.clientWidth, height: host.clientHeight });
  };
  return { name: "picture", title: "Save as a picture", icon: Plotly.Icons.camera, click };
}

// Without marks of Plotly's under the mouse the points are found, named and clicked here.
function pointed(host, canvas, hint, chosen) {
  let [pressed, asked] = [null, false];
  const inside = (event) => !event.target.closest(".modebar, .legend");
  host.addEventListener("mousedown", (event) => {
    pressed = inside(event) ? [event.clientX, event.clientY] : null;
  }, true);
  host.addEventListener("mousemove", (event) => {
    if (asked || !host.cloud) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      const row = host.cloud && !event.buttons ? window.memrlCloud.nearest(canvas, host, event) : -1;
      hint.hidden = row < 0;
      if (row < 0) return;
      const { q, visits } = host.cloud;
      hint.textContent = `q ${q[row] < 0 ? "−" : "+"}${Math.abs(q[row]).toFixed(2)} · ${visits[row]} uses · click to read`;
      const box = host.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      Object.assign(hint.style, { top: `${y + 14}px`, left: `${Math.min(x + 12, box.width - 190)}px` });
    });
  });
  host.addEventListener("mouseleave", () => (hint.hidden = true));
  window.addEventListener("mouseup", (event) => {
    const still = pressed && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) < 4;
    pressed = null;
    if (!still || !host.cloud) return;
    const row = window.memrlCloud.nearest(canvas, host, event);
    if (row >= 0) chosen(row);
  }, true);
}

function inTheme(layout, host) {
  const style = getComputedStyle(host);
  const text = style.getPropertyValue("--st-text-color").trim() || style.color;
  const family = style.getPropertyValue("--st-font").trim() || style.fontFamily;
  const axes = {};
  for (const [name, axis] of Object.entries(layout)) {
    if (/^[xy]axis\d*$/.test(name)) axes[name] = { automargin: true, gridcolor: GRID, zerolinecolor: GRID, ...axis };
  }
  const tools = { bgcolor: style.getPropertyValue("--st-background-color").trim(), color: text, activecolor: text };
  return { ...layout, ...axes, modebar: tools, font: { ...(layout.font || {}), color: text, family, size: 12 } };
}

export default function ({ parentElement, data, setTriggerValue }) {
  const host = parentElement.querySelector(".memory-map");
  host.setAttribute("aria-label", data.alt);
  host.style.height = `${data.height}px`;
  const figure = JSON.parse(data.figure);
  const canvas = parentElement.querySelector(".map-cloud");
  const hint = parentElement.querySelector(".map-hint");
  let gone = false;
  host.choose = (row) => setTriggerValue("clicked", `row ${row}`);
  Promise.all([once(() => window.memrlPlotly), cloudOf(data.cloud), afterTheMap(host)]).then(([Plotly, cloud]) => {
    if (gone) return;
    if (cloud && !host.followed) {
      window.memrlCloud.follow(canvas, host);
      if (!host.pointed) pointed(host, canvas, hint, (row) => host.choose(row));
      host.pointed = true;
    }
    host.cloud = cloud;
    host.image = data.image;
    // Over other charts the wheel scrolls the page.
    const config = { ...CONFIG, scrollZoom: data.map, toImageButtonOptions: data.image };
    if (!data.map) config.modeBarButtonsToRemove = [...CONFIG.modeBarButtonsToRemove, "zoomIn2d", "zoomOut2d", "autoScale2d"];
    if (cloud) {
      config.modeBarButtonsToRemove = [...CONFIG.modeBarButtonsToRemove, "toImage", "autoScale2d"];
      host.camera ??= camera(Plotly, host, canvas);
      config.modeBarButtonsToAdd = [host.camera];
    }
    // Without a revision that stays the same Plotly forgets zoom and hidden lines with every update.
    const layout = { uirevision: "kept", ...inTheme(figure.layout, host), height: data.height, autosize: true };
    const drawn = () => {
      // With the marks and not a frame later: the browser may be busy until then.
      if (cloud) window.memrlCloud.repaint(canvas, host);
      host.dataset.drawn = String(Number(host.dataset.drawn || 0) + 1);
    };
    if (onlyMoved(host, figure.data, layout, data.image)) return drawn();
    Plotly.react(host, asDrawn(host, figure.data), layout, config).then(() => {
      drawn();
      host.removeAllListeners("plotly_click");
      if (!data.map) return;
      host.on("plotly_click", (event) => {
        const card = event.points.map((point) => point.customdata).find((found) => Array.isArray(found));
        if (card) setTriggerValue("clicked", card[0]);
      });
    });
  });
  return () => {
    gone = true;
  };
}
