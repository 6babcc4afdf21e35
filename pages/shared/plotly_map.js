// One Plotly chart that is updated in place: zoom, camera and node survive every rerun of the page.

const CONFIG = { displaylogo: false, responsive: true, scrollZoom: true, modeBarButtonsToRemove: ["lasso2d", "select2d"] };

const GRID = "rgba(140, 140, 150, 0.25)";

function plotly() {
  return new Promise((resolve) => {
    const look = () => (window.memrlPlotly ? resolve(window.memrlPlotly) : setTimeout(look, 50));
    look();
  });
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
  let gone = false;
  plotly().then((Plotly) => {
    if (gone) return;
    // Without a revision that stays the same Plotly forgets zoom and hidden lines with every update.
    const layout = { uirevision: "kept", ...inTheme(figure.layout, host), height: data.height, autosize: true };
    Plotly.react(host, figure.data, layout, { ...CONFIG, toImageButtonOptions: data.image }).then(() => {
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
