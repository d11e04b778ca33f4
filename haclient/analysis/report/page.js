(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const say = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", dark() ? "Show in light colours" : "Show in dark colours");
  };
  const kept = (value) => {
    try {
      if (value) localStorage.setItem("haclient-report-theme", value);
      return localStorage.getItem("haclient-report-theme");
    } catch { return null; }
  };
  if (button) {
    const before = kept();
    if (before === "dark" || before === "light") root.dataset.theme = before;
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      kept(root.dataset.theme);
      say();
    });
    button.hidden = false;
    say();
  }

  const config = {
    background: "transparent",
    font: "system-ui, sans-serif",
    view: { stroke: null },
    axis: {
      labelColor: "var(--soft)", titleColor: "var(--soft)", domainColor: "var(--soft)",
      tickColor: "var(--soft)", gridColor: "var(--grid)", labelFontSize: 12, titleFontSize: 12,
      titleFontWeight: "normal",
    },
    axisX: { grid: false },
    axisY: { domain: false, ticks: false },
    legend: {
      labelColor: "var(--ink)", labelFontSize: 12, symbolSize: 90, columnPadding: 10, offset: 6,
    },
    text: { color: "var(--ink)", fontSize: 12 },
    rule: { color: "var(--soft)" },
  };
  const options = {
    renderer: "svg", actions: false, ast: true, config,
    tooltip: { theme: "custom", sanitize: (value) => String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;") },
    loader: { load: () => Promise.reject(new Error("nothing is loaded")) },
  };

  const zoomed = (view, factor) => {
    const signals = view.getState({ signals: (name) => name === "zoom_tuple_fields" }).signals;
    const fields = signals.zoom_tuple_fields;
    if (!fields) return;
    const name = `zoom_${fields[0].field.replace(/\W/g, "_")}`;
    const [low, high] = view.scale("x").domain().map(Number);
    const middle = (low + high) / 2, half = ((high - low) / 2) * factor;
    view.signal(name, factor ? [middle - half, middle + half] : null).runAsync();
  };
  const controls = (place, view) => {
    const row = document.createElement("div");
    row.className = "zoom";
    for (const [text, label, factor] of [["+", "Zoom in", 0.5], ["\u2212", "Zoom out", 2], ["Reset", "Show all", 0]]) {
      const one = document.createElement("button");
      one.type = "button";
      one.textContent = text;
      one.setAttribute("aria-label", label);
      one.addEventListener("click", () => zoomed(view, factor));
      row.append(one);
    }
    place.after(row);
  };
  // a finger does not hover: what is tapped shows its values, until something else is
  const shown = (point) => {
    const tip = document.getElementById("vg-tooltip-element");
    if (tip) tip.classList.remove("visible");
    if (point.pointerType !== "touch" || !point.target.closest(".chart svg")) return;
    const { clientX, clientY } = point;
    point.target.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX, clientY }));
  };
  document.addEventListener("click", shown);

  const charts = JSON.parse(document.getElementById("charts").textContent);
  const drawn = Object.entries(charts).map(([id, spec]) => {
    const place = document.getElementById(id);
    return vegaEmbed(place, spec, options).then(({ view }) => {
      if ((spec.params || []).some((each) => each.name === "zoom")) controls(place, view);
    });
  });
  Promise.allSettled(drawn).then((all) => {
    root.dataset.drawn = all.filter((one) => one.status === "fulfilled").length + "/" + all.length;
    all.forEach((one) => { if (one.reason) console.error(one.reason); });
  });
})();
