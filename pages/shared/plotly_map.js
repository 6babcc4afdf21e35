// One Plotly chart that is updated in place: zoom, camera and node survive every rerun of the page.

// Plotly offers a button that sends the chart to a service of its makers, unless it is told not to.
const CONFIG = {
  displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: "",
  modeBarButtonsToRemove: ["lasso2d", "select2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
};

const GRID = "rgba(140, 140, 150, 0.25)";

// What is found as soon as it is there; never, once nobody wants it any more.
function once(found, wanted) {
  return new Promise((resolve) => {
    const look = () => {
      if (!wanted()) return;
      const there = found();
      if (there) resolve(there);
      else setTimeout(look, 20);
    };
    look();
  });
}

// Plotly takes an array for changed unless it is the very same one: what is as it was need not be drawn again.
function asDrawn(host, traces) {
  const serialised = traces.map((trace) => JSON.stringify(trace));
  const kept = traces.map((trace, at) => {
    return serialised[at] === host.serialised?.[at] ? { ...host.traces[at], visible: trace.visible } : trace;
  });
  Object.assign(host, { serialised, traces: kept });
  return kept;
}

// Plotly reads a small HTML in names, and places on other axes are other pixels: such marks Plotly alone draws.
const upright = (shape) => (shape.xref ?? "x") === "x" && shape.x0 === shape.x1;
const plain = (name) => (name.xref ?? "x") === "x" && !/[<&]/.test(name.text);

// What is left of a layout when its upright lines and the names above them may stand anywhere.
function withoutPlaces(layout) {
  const shapes = (layout.shapes || []).map((shape) => (upright(shape) ? { ...shape, x0: 0, x1: 0 } : shape));
  const annotations = (layout.annotations || []).map((name) => (plain(name) ? { ...name, x: 0, text: "" } : name));
  return JSON.stringify({ ...layout, shapes, annotations });
}

// Plotly draws everything again for a mark that has moved. Where nothing else has changed the marks are moved here, and
// Plotly is told in both of its layouts: a zoom draws marks from the second, which is not made anew from the first.
// False where it has to draw now.
function onlyMoved(host, traces, layout, image) {
  const [rest, serialised] = [withoutPlaces(layout) + JSON.stringify(image), traces.map((trace) => JSON.stringify(trace))];
  const known = host.rest === rest && serialised.length === host.serialised?.length && serialised.every((one, at) => one === host.serialised[at]);
  host.rest = rest;
  if (!known || !host._fullLayout) return false;
  const { xaxis: axis, shapes: lines = [], annotations: words = [] } = host._fullLayout;
  const [low, high] = axis?.range || [];
  const { shapes = [], annotations: names = [] } = layout;
  const moved = shapes.flatMap((shape, at) => {
    const path = host.querySelector(`.shapelayer path[data-index="${at}"]`);
    return upright(shape) && shape.x0 !== lines[at].x0 ? [{ path, x: shape.x0, line: lines[at] }] : [];
  });
  const renamed = names.flatMap(({ x, text }, at) => {
    const label = host.querySelector(`.annotation[data-index="${at}"] text`);
    return x !== words[at].x || text !== words[at].text ? [{ label, x, text, word: words[at] }] : [];
  });
  const shown = ({ x, path, label }) => (path || label) && typeof x === "number" && x >= low && x <= high;
  if (![...moved, ...renamed].every(shown)) return false;
  const pixel = (x) => axis._offset + axis.d2p(x);
  for (const { path, x, line } of moved) {
    path.setAttribute("d", path.getAttribute("d").replace(/([ML])[-\d.e]+,/g, `$1${pixel(x)},`));
    Object.assign(line, { x0: x, x1: x });
  }
  for (const { label, x, text, word } of renamed) {
    // Plotly makes a new element whenever it draws the name: this one was drawn where the name stood then.
    label.drawnAt ??= word.x;
    label.textContent = label.dataset.unformatted = text;
    label.closest(".annotation").setAttribute("transform", `translate(${pixel(x) - pixel(label.drawnAt)},0)`);
    Object.assign(word, { x, text });
  }
  Object.assign(host.layout, { shapes, annotations: names });
  return true;
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

export default function ({ parentElement, data }) {
  const host = parentElement.querySelector(".memory-map");
  host.setAttribute("aria-label", data.alt);
  host.style.height = `${data.height}px`;
  const figure = JSON.parse(data.figure);
  // What an older run of this function waits for may come after what a newer one has drawn.
  const turn = (host.turn = (host.turn ?? 0) + 1);
  const wanted = () => host.isConnected && host.turn === turn;
  once(() => window.memrlPlotly, wanted).then((Plotly) => {
    if (!wanted()) return;
    // Over a chart the wheel scrolls the page.
    const config = { ...CONFIG, scrollZoom: false, toImageButtonOptions: data.image };
    // Without a revision that stays the same Plotly forgets zoom and hidden lines with every update.
    const layout = { uirevision: "kept", ...inTheme(figure.layout, host), height: data.height, autosize: true };
    const drawn = () => (host.dataset.drawn = String(Number(host.dataset.drawn || 0) + 1));
    if (onlyMoved(host, figure.data, layout, data.image)) return drawn();
    Plotly.react(host, asDrawn(host, figure.data), layout, config).then(drawn);
  });
  // Plotly listens to the window's size, which keeps a chart for ever. Streamlit calls this also for a run that it had
  // already replaced, with the chart still on the page.
  return () => {
    setTimeout(() => host.isConnected || window.memrlPlotly?.purge(host));
  };
}
