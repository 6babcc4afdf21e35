// Draws the document's figures in the colours of the page: again when the theme changes, and in light for paper.
(() => {
  // Plotly offers a button that sends the chart to a service of its makers, unless it is told not to.
  const CONFIG = {
    displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: "",
    toImageButtonOptions: { format: "svg", filename: "memrl" },
  };
  const PAPER_WIDTH = 660;
  const root = document.documentElement;

  function inTheme(layout) {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(name).trim();
    const rules = { gridcolor: colour("--rule"), zerolinecolor: colour("--rule"), linecolor: colour("--quiet") };
    const axis = { ...rules, automargin: true };
    const template = {
      layout: {
        font: { color: colour("--text"), family: "system-ui, sans-serif" },
        xaxis: axis,
        yaxis: axis,
        scene: { xaxis: rules, yaxis: rules, zaxis: rules },
        hoverlabel: { align: "left" },
        colorway: ["#4c8fd6", "#e08214", "#1b9e77", "#998ec3", "#d95f02", "#8a8f98"],
      },
    };
    return { ...layout, template, ...(root.hasAttribute("data-paper") ? { width: PAPER_WIDTH } : {}) };
  }

  function draw() {
    for (const host of document.querySelectorAll(".chart")) {
      const figure = JSON.parse(host.nextElementSibling.textContent);
      Plotly.react(host, figure.data, inTheme(figure.layout), CONFIG);
    }
  }

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("beforeprint", () => {
    root.setAttribute("data-paper", "");
    draw();
  });
  addEventListener("afterprint", () => {
    root.removeAttribute("data-paper");
    draw();
  });
})();
