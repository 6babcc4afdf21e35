// One Plotly chart that is updated in place: zoom, camera and node survive every rerun of the page.

const CONFIG = { displaylogo: false, responsive: true, scrollZoom: true, modeBarButtonsToRemove: ["lasso2d", "select2d"] };

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

// Plotly takes an array for changed unless it is the very same one: what is as it was need not be drawn again.
function asDrawn(host, traces) {
  const told = traces.map((trace) => JSON.stringify(trace));
  const kept = traces.map((trace, at) => {
    return told[at] === host.told?.[at] ? { ...host.traces[at], visible: trace.visible } : trace;
  });
  Object.assign(host, { told, traces: kept });
  return kept;
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
  return { ...layout, ...axes, font: { ...(layout.font || {}), color: text, family, size: 12 } };
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
  Promise.all([once(() => window.memrlPlotly), cloudOf(data.cloud)]).then(([Plotly, cloud]) => {
    if (gone) return;
    if (cloud && !host.followed) {
      window.memrlCloud.follow(canvas, host);
      if (!host.pointed) pointed(host, canvas, hint, (row) => host.choose(row));
      host.pointed = true;
    }
    host.cloud = cloud;
    host.image = data.image;
    const config = { ...CONFIG, toImageButtonOptions: data.image };
    if (cloud) {
      config.modeBarButtonsToRemove = [...CONFIG.modeBarButtonsToRemove, "toImage", "autoScale2d"];
      host.camera ??= camera(Plotly, host, canvas);
      config.modeBarButtonsToAdd = [host.camera];
    }
    // Without a revision that stays the same Plotly forgets zoom and hidden lines with every update.
    const layout = { uirevision: "kept", ...inTheme(figure.layout, host), height: data.height, autosize: true };
    Plotly.react(host, asDrawn(host, figure.data), layout, config).then(() => {
      host.dataset.drawn = String(Number(host.dataset.drawn || 0) + 1);
      host.removeAllListeners("plotly_click");
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
