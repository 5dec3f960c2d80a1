// Draws every chart into its place; no network, no eval (Vega's expressions are interpreted).
(() => {
  "use strict";
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const places = [...document.querySelectorAll("[data-chart]")];
  const views = new Map();
  const root = document.documentElement;
  const font = getComputedStyle(document.body).fontFamily;
  // Colours are the page's own, so that a change of theme and a print need no drawing anew.
  const theme = {
    font,
    axis: {
      labelColor: "var(--fg)", titleColor: "var(--muted)", gridColor: "var(--line)", domainColor: "var(--line)",
      tickColor: "var(--line)", gridOpacity: 0.6,
    },
    header: { labelColor: "var(--fg)" },
    legend: { labelColor: "var(--fg)", titleColor: "var(--muted)" },
    text: { color: "var(--fg)" },
  };
  const merged = (a, b) => {
    const out = { ...a };
    for (const [key, value] of Object.entries(b)) {
      out[key] = value && typeof value === "object" && !Array.isArray(value) ? merged(a[key] || {}, value) : value;
    }
    return out;
  };

  const shown = () => [...document.querySelectorAll("input[name=policy]:checked")].map((box) => box.value);
  const setting = () => document.getElementById("setting")?.value;

  // As many panels side by side as fit, each as wide as its share of the page.
  function fitted({ spec, panels, gutter, margin }, room) {
    const copy = structuredClone(spec);
    const columns = Math.max(1, Math.min(panels, 2, Math.floor((room - margin) / 290)));
    const width = Math.max(150, Math.min(760, Math.floor((room - margin) / columns - gutter)));
    if (copy.facet) copy.spec.width = width;
    else if (copy.concat) for (const part of copy.concat) part.width = width;
    else copy.width = width;
    if (copy.facet || copy.concat) copy.columns = columns;
    for (const param of copy.params) {
      if (param.name === "shown") param.value = shown();
      if (param.name === "setting") param.value = setting() ?? param.value;
    }
    copy.config = merged(copy.config, theme);
    return copy;
  }

  async function draw(place) {
    const chart = specs[place.dataset.chart];
    views.get(place)?.finalize();
    try {
      const done = await vegaEmbed(place, fitted(chart, place.clientWidth), {
        ast: true, actions: false, renderer: "svg", defaultStyle: false, mode: "vega-lite",
        tooltip: { disableDefaultStyle: true },
      });
      views.set(place, done);
      place.classList.add("done");
      if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
    } catch (error) {
      place.textContent = "This chart could not be drawn; the table below says the same.";
      console.error(`${place.dataset.chart}: ${error}`);
    }
  }

  // What is in sight comes first, the others whenever the page has nothing else to do.
  async function drawAll() {
    const near = (place) => place.getBoundingClientRect().top < innerHeight;
    const idle = () => new Promise((resume) => (window.requestIdleCallback ?? setTimeout)(resume));
    const [first, later] = [places.filter(near), places.filter((place) => !near(place))];
    for (const place of first) await draw(place);
    root.dataset.interactiveMs = Math.round(performance.now());
    for (const place of later) {
      await idle();
      await draw(place);
    }
    root.dataset.readyMs = Math.round(performance.now());
  }

  function signal(name, value) {
    for (const { view } of views.values()) view.signal(name, value).runAsync();
  }

  document.querySelectorAll("input[name=policy]").forEach((box) => box.addEventListener("change", () => signal("shown", shown())));
  document.getElementById("setting")?.addEventListener("change", () => signal("setting", setting()));
  let width = innerWidth;
  let waiting = 0;
  addEventListener("resize", () => {
    if (Math.abs(innerWidth - width) < 40) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => { width = innerWidth; drawAll(); }, 200);
  });
  drawAll();
})();
