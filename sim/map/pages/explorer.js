(() => {
  "use strict";
  const map = JSON.parse(document.getElementById("leadline-map").textContent);
  const MEAN = 0, HALF = 1, DEPTH = 2, BREADTH = 3, STEP = 4, LENGTH = 5, FIELDS = 6;
  const byId = (id) => document.getElementById(id);

  // -- reading the map: the same arithmetic as sim/map/interpolate.py ---------------------------

  const place = (axis, value) => (axis.log ? Math.log(value) : value);
  const corners = (cell) => [map.points[cell[0]][0], map.points[cell[cell.length - 1]][0]];
  const size = (cell) => {
    const [low, high] = corners(cell);
    return map.axes.reduce((all, a, i) => (low[i] < high[i] ? all * (place(a, high[i]) - place(a, low[i])) : all), 1);
  };
  const boxes = map.cells.map((cell) => ({ cell, ends: corners(cell), size: size(cell) })).sort((a, b) => a.size - b.size);

  function weighted(at) {
    at = at.map((v, i) => Math.min(Math.max(v, map.axes[i].values[0]), map.axes[i].values[map.axes[i].values.length - 1]));
    const { cell, ends: [low, high] } = boxes.find(({ ends: [a, b] }) => at.every((v, i) => a[i] <= v && v <= b[i]));
    let weights = [1];
    map.axes.forEach((axis, i) => {
      if (low[i] === high[i]) return;
      const t = (place(axis, at[i]) - place(axis, low[i])) / (place(axis, high[i]) - place(axis, low[i]));
      weights = weights.flatMap((w) => [w * (1 - t), w * t]);
    });
    return cell.map((corner, i) => [map.points[corner], weights[i]]).filter(([, w]) => w > 0);
  }

  function mixed(parts) {
    if (parts.some(([figures]) => figures === 0)) return null;
    const out = [];
    for (let f = 0; f < FIELDS; f++) {
      out.push(parts.some(([figures]) => figures[f] === null) ? NaN : parts.reduce((sum, [figures, w]) => sum + w * figures[f], 0));
    }
    return out;
  }

  function isEven(policies, best, i) {
    if (i === best) return true;
    const here = policies[i], top = policies[best][MEAN];
    if (!here || Number.isNaN(here[MEAN])) return false;
    const half = Number.isNaN(here[HALF]) ? 0 : here[HALF];
    return Math.abs(here[MEAN] - top) <= half || Math.abs(here[MEAN] / top - 1) < map.error;
  }

  function reading(at) {
    const parts = weighted(at);
    const policies = map.policies.map((_, i) => mixed(parts.map(([point, w]) => [point[3][i], w])));
    let best = null;
    policies.forEach((p, i) => {
      if (!p || Number.isNaN(p[MEAN])) return;
      if (best === null || (map.metric.lower ? p[MEAN] < policies[best][MEAN] : p[MEAN] > policies[best][MEAN])) best = i;
    });
    const even = best === null ? [] : map.policies.map((_, i) => i).filter((i) => isEven(policies, best, i));
    const mean = (k) => (parts.some(([p]) => p[k] === null) ? NaN : parts.reduce((sum, [p, w]) => sum + w * p[k], 0));
    const deep = parts.length === 1 ? parts[0][0][4] : enough(policies);
    return { policies, best, even, enough: deep, points: parts.length, rate: mean(1), context: mean(2) };
  }
  window.leadlineReading = reading;

  // -- words ------------------------------------------------------------------------------------

  const short = (value, digits = 3) => (Number.isNaN(value) ? "–" : Number(value.toPrecision(digits)).toLocaleString("en"));
  function valueText(axis, value) {
    if (axis.unit === "share") return `${short(100 * value)} %`;
    if (axis.unit === "/s") return `${short(value)}/s`;
    if (axis.unit === "in flight") return `${Math.round(value)} in flight`;
    return axis.unit === "tokens" ? `${Math.round(value).toLocaleString("en")} tokens` : value.toFixed(2);
  }

  function gain(seen, best, over) {
    const ratio = seen.policies[best][MEAN] / seen.policies[over][MEAN];
    return map.metric.lower ? 1 - ratio : ratio - 1;
  }

  function verdict(seen) {
    if (seen.best === null) return "No policy keeps up here: the backlog grows under all of them.";
    const base = map.baseline, name = map.policies[seen.best], label = map.policies[base];
    const others = seen.even.length - 1;
    const even = others ? ` (${others === 1 ? "one other is" : `${others} others are`} even with it)` : "";
    if (seen.best === base) {
      const next = map.policies.map((_, i) => i).filter((i) => i !== base && seen.policies[i])
        .sort((a, b) => gain(seen, b, base) - gain(seen, a, base))[0];
      if (others) return `No difference: ${label} is as good as the best policy. Do not bother.`;
      return next === undefined ? `${label} wins.` : `${label} wins: the next best is ${short(100 * Math.abs(gain(seen, base, next)), 2)} % behind.`;
    }
    if (seen.even.includes(base)) return `No difference: ${label} is as good as ${name}. Do not bother.`;
    if (!seen.policies[base]) return `${name} wins${even}; ${label} does not keep up.`;
    return `${name} wins by ${short(100 * gain(seen, seen.best, base), 2)} % over ${label}${even}.`;
  }

  // -- drawing ----------------------------------------------------------------------------------

  const SVG = "http://www.w3.org/2000/svg";
  function add(parent, name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.appendChild(node);
    return node;
  }

  function drawStep(figures) {
    const svg = byId("ll-step");
    svg.replaceChildren();
    const breadth = Math.max(1, Math.round(figures[BREADTH])), depth = figures[DEPTH], kept = figures[LENGTH] - 1;
    const each = Math.ceil(breadth / 48), columns = Math.ceil(breadth / each), rows = Math.max(deepest, 1) + 1;
    const width = Math.min(44, 400 / columns), height = 195 / rows;
    for (let c = 0; c < columns; c++) {
      for (let r = 0; r <= Math.ceil(depth - 1e-9); r++) {
        const share = r === 0 ? 1 : Math.min(1, depth - r + 1), good = r === 0 ? 1 : Math.max(0, Math.min(1, kept - r + 1));
        const box = { x: 10 + c * width + 0.5, width: Math.max(width - 1, 0.5), rx: 1 };
        const y = 215 - r * height - height * share;
        add(svg, "rect", { ...box, y: y + 0.5, height: Math.max(height * share - 1, 0.5), fill: "var(--accent)", "fill-opacity": 0.22 });
        if (good > 0) {
          const h = height * Math.min(good, share);
          add(svg, "rect", { ...box, y: 215 - r * height - h + 0.5, height: Math.max(h - 1, 0.5), fill: "var(--accent)", "fill-opacity": r ? 0.75 : 1 });
        }
      }
    }
    add(svg, "text", { x: 10, y: 236 }, `breadth ${short(figures[BREADTH])}: sequences${each > 1 ? ` (a column is ${each})` : ""}`);
    add(svg, "text", { x: 410, y: 236, "text-anchor": "end" }, `depth ${short(depth)}: drafts on each`);
    const tokens = figures[BREADTH] * (1 + depth);
    byId("ll-step-text").textContent = `One step: ${short(tokens)} tokens in ${short(figures[STEP])} ms. Solid cells are kept ` +
      `(${short(figures[LENGTH])} a round), pale ones are drafts that are rejected.`;
    return tokens;
  }

  function curveMs(tokens, breadth, context) {
    const { tokens: x, ms } = map.curve;
    let i = x.findIndex((t) => t >= tokens);
    if (i < 0) i = x.length - 1;
    const base = i === 0 ? ms[0] : ms[i - 1] + (ms[i] - ms[i - 1]) * (tokens - x[i - 1]) / (x[i] - x[i - 1]);
    const wide = tokens > breadth ? map.curve.wide : 0;
    return base + context * (breadth * (map.curve.context + wide) + tokens * map.curve.query);
  }

  function drawCurve(seen, figures, tokens) {
    const svg = byId("ll-curve");
    svg.replaceChildren();
    const last = map.curve.tokens[map.curve.tokens.length - 1];
    const top = 1.08 * Math.max(figures[STEP], curveMs(last, figures[BREADTH], seen.context));
    const x = (t) => 42 + 366 * Math.log(Math.max(t, 1)) / Math.log(last), y = (ms) => 215 - 200 * ms / top;
    for (let t = 1; t <= last; t *= 4) {
      add(svg, "line", { x1: x(t), x2: x(t), y1: 215, y2: 219, stroke: "var(--muted)" });
      add(svg, "text", { x: x(t), y: 231, "text-anchor": "middle" }, String(t));
    }
    for (const part of [0, 0.5, 1]) add(svg, "text", { x: 38, y: y(part * top / 1.08) + 4, "text-anchor": "end" }, short(part * top / 1.08, 2));
    add(svg, "line", { x1: 42, x2: 408, y1: 215, y2: 215, stroke: "var(--line)" });
    add(svg, "text", { x: 408, y: 245, "text-anchor": "end" }, "tokens in a step (log)");
    add(svg, "text", { x: 46, y: 14 }, "ms");
    const ridge = map.curve.ridge;
    if (ridge && ridge < last) {
      add(svg, "rect", { x: 42, width: x(ridge) - 42, y: 15, height: 200, fill: "var(--accent)", "fill-opacity": 0.07 });
      add(svg, "line", { x1: x(ridge), x2: x(ridge), y1: 15, y2: 215, stroke: "var(--muted)", "stroke-dasharray": "4 3" });
      add(svg, "text", { x: x(ridge) - 5, y: 26, "text-anchor": "end" }, `ridge ${short(ridge)}`);
    }
    const path = map.curve.tokens.map((t) => `${x(t).toFixed(1)},${y(curveMs(t, Math.min(t, figures[BREADTH]), seen.context)).toFixed(1)}`);
    add(svg, "polyline", { points: path.join(" "), fill: "none", stroke: "var(--fg)", "stroke-width": 1.5 });
    const pass = curveMs(tokens, figures[BREADTH], seen.context), at = x(Math.min(tokens, last));
    add(svg, "line", { x1: at, x2: at, y1: y(pass), y2: y(figures[STEP]), stroke: "var(--accent)", "stroke-width": 2 });
    add(svg, "circle", { cx: at, cy: y(figures[STEP]), r: 6, fill: "var(--accent)" });
    byId("ll-curve-text").textContent = `Line: the target's pass at this context, ${short(pass)} ms at ${short(tokens)} tokens. ` +
      `Dot: the simulated step, ${short(figures[STEP])} ms, with drafting and prompts on top.` +
      (ridge ? (tokens < ridge ? " Left of the ridge: more tokens are nearly free." : " Right of the ridge: every token costs time.") : "");
  }

  // The depth that is enough: the smallest fixed depth that is no worse than the best of them. Simulated points
  // bring their own.
  const fixed = Object.entries(map.depths).map(([i, depth]) => [Number(i), depth]).sort((a, b) => a[1] - b[1]);
  const deepest = fixed[fixed.length - 1][1];
  function enough(policies) {
    const stable = fixed.filter(([i]) => policies[i] && !Number.isNaN(policies[i][MEAN]));
    if (!stable.length) return null;
    const value = ([i]) => (map.metric.lower ? 1 : -1) * policies[i][MEAN];
    const best = stable.reduce((a, b) => (value(b) < value(a) ? b : a))[0];
    return stable.find(([i]) => isEven(policies, best, i))[1];
  }

  const between = (axis, t) => {
    const [a, b] = [place(axis, axis.values[0]), place(axis, axis.values[axis.values.length - 1])];
    return axis.log ? Math.exp(a + t * (b - a)) : a + t * (b - a);
  };
  const colour = (depth) => (depth === null ? "var(--line)" : depth === 0 ? "var(--bg)" : `color-mix(in srgb, var(--accent) ${Math.round(15 + 80 * depth / deepest)}%, var(--bg))`);

  function drawSlice(at) {
    const svg = byId("ll-slice");
    if (map.axes.length < 2) { byId("ll-slice-figure").hidden = true; return; }
    svg.replaceChildren();
    const [across, up] = map.axes, nx = 36, ny = 20, w = 366 / nx, h = 190 / ny;
    for (let i = 0; i < nx; i++) {
      for (let j = 0; j < ny; j++) {
        const here = [between(across, (i + 0.5) / nx), between(up, (j + 0.5) / ny), ...at.slice(2)];
        add(svg, "rect", { x: 42 + i * w, y: 205 - (j + 1) * h, width: w + 0.4, height: h + 0.4, fill: colour(reading(here).enough) });
      }
    }
    const where = (axis, v) => (place(axis, v) - place(axis, axis.values[0])) / (place(axis, axis.values[axis.values.length - 1]) - place(axis, axis.values[0]));
    add(svg, "rect", { x: 42, y: 15, width: 366, height: 190, fill: "none", stroke: "var(--line)" });
    add(svg, "circle", { cx: 42 + 366 * where(across, at[0]), cy: 205 - 190 * where(up, at[1]), r: 6, fill: "none", stroke: "var(--fg)", "stroke-width": 2.5 });
    const ends = (axis) => [valueText(axis, axis.values[0]), valueText(axis, axis.values[axis.values.length - 1])];
    add(svg, "text", { x: 42, y: 220 }, ends(across)[0]);
    add(svg, "text", { x: 408, y: 220, "text-anchor": "end" }, ends(across)[1]);
    add(svg, "text", { x: 225, y: 220, "text-anchor": "middle" }, across.title);
    add(svg, "text", { x: 38, y: 205, "text-anchor": "end" }, ends(up)[0].split(" ")[0]);
    add(svg, "text", { x: 38, y: 24, "text-anchor": "end" }, ends(up)[1].split(" ")[0]);
    add(svg, "text", { x: 42, y: 11 }, `↑ ${up.title}`);
    fixed.forEach(([, depth], i) => {
      add(svg, "rect", { x: 42 + i * 40, y: 230, width: 12, height: 12, fill: colour(depth), stroke: "var(--line)" });
      add(svg, "text", { x: 58 + i * 40, y: 240 }, depth === 0 ? "off" : String(depth));
    });
    byId("ll-slice-text").textContent = "Enough depth: the smallest fixed depth that is no worse than the best. The ring is here" +
      (map.axes.length > 2 ? "; drag the other sliders and watch it move." : ".");
  }

  function drawTable(seen) {
    const table = byId("ll-table");
    table.replaceChildren();
    const row = (tag, cells, className) => {
      const tr = table.insertRow();
      if (className) tr.className = className;
      cells.forEach((text) => { const cell = document.createElement(tag); cell.textContent = text; tr.appendChild(cell); });
      return tr;
    };
    row("th", ["policy", `${map.metric.label}${map.metric.unit ? `, ${map.metric.unit}` : ""}`, "depth", "breadth", "step, ms", ""]).lastChild.setAttribute("aria-hidden", "true");
    const most = Math.max(...seen.policies.filter((p) => p).map((p) => p[MEAN]));
    map.policies.forEach((label, i) => {
      const p = seen.policies[i];
      const even = seen.even.includes(i) && i !== seen.best ? " =" : "";
      const cells = p ? [p[MEAN], p[DEPTH], p[BREADTH], p[STEP]].map((v) => short(v)) : ["unstable", "", "", ""];
      const last = row("td", [label + even.replace(' ', '\u00a0'), ...cells, ""], i === seen.best ? "ll-best" : "").lastChild;
      if (!p) return;
      const bar = document.createElement("span");
      bar.className = "ll-bar";
      bar.style.width = `${(2.4 * p[MEAN] / most).toFixed(2)}rem`;
      last.style.textAlign = "left";
      last.appendChild(bar);
    });
  }

  // -- sliders ----------------------------------------------------------------------------------

  const TICKS = 10; // of a slider between two simulated values
  const stops = map.axes.map((_, i) => [...new Set(map.points.map((p) => p[0][i]))].sort((a, b) => a - b));
  function valueAt(i, tick) {
    const axis = map.axes[i], low = stops[i][Math.floor(tick / TICKS)], t = (tick % TICKS) / TICKS;
    if (t === 0) return low;
    const high = stops[i][Math.floor(tick / TICKS) + 1];
    return axis.log ? Math.exp(Math.log(low) + t * (Math.log(high) - Math.log(low))) : low + t * (high - low);
  }

  const sliders = map.axes.map((axis, i) => {
    const box = document.createElement("div"), label = document.createElement("label"), output = document.createElement("output");
    const input = document.createElement("input");
    Object.assign(input, { type: "range", min: 0, max: TICKS * (stops[i].length - 1), step: 1, id: `ll-axis-${i}` });
    input.value = TICKS * Math.floor((stops[i].length - 1) / 2);
    label.htmlFor = output.htmlFor = input.id;
    label.append(axis.title, output);
    box.append(label, input);
    byId("ll-sliders").appendChild(box);
    input.addEventListener("input", update);
    return { input, output, axis };
  });

  const shown = byId("ll-shown");
  ["the winner", ...map.policies].forEach((label, i) => shown.add(new Option(label, i - 1)));
  shown.addEventListener("change", update);
  byId("ll-about").textContent = `Step costs: ${map.about}.`;

  function update() {
    const at = sliders.map(({ input }, i) => valueAt(i, Number(input.value)));
    const seen = reading(at);
    sliders.forEach(({ input, output, axis }, i) => {
      const rate = axis.unit === "share" && !Number.isNaN(seen.rate) ? ` (${short(seen.rate)}/s)` : "";
      output.textContent = valueText(axis, at[i]) + rate;
      input.setAttribute("aria-valuetext", output.textContent);
    });
    byId("ll-verdict").textContent = verdict(seen);
    const mark = byId("ll-mark");
    mark.dataset.computed = String(seen.points === 1);
    mark.textContent = seen.points === 1 ? "computed: this point was simulated" : `interpolated between ${seen.points} simulated points`;
    const drawn = Number(shown.value) >= 0 ? Number(shown.value) : seen.best;
    const figures = drawn === null ? null : seen.policies[drawn];
    drawTable(seen);
    drawSlice(at);
    if (figures) drawCurve(seen, figures, drawStep(figures));
    else for (const id of ["ll-step", "ll-curve"]) { byId(id).replaceChildren(); byId(`${id}-text`).textContent = "Unstable here: nothing to draw."; }
  }

  update();
  byId("ll-explorer").dataset.ready = "true";
})();
