// The time line of the steps: two charts over one time axis, with zoom by drag, wheel, buttons and keys.
"use strict";
(() => {
  const holder = document.getElementById("timeline");
  if (!holder) return;
  const data = JSON.parse(document.getElementById("timeline-data").textContent);
  const names = JSON.parse(holder.dataset.names);
  const parts = ["input", "compile", "host"].filter((name) => data[name]);
  const t = [0, ...data.t];
  const n = [data.n[0] - 1, ...data.n];
  const lead = (values) => [values[0], ...values];
  const last = t[t.length - 1];
  const waited = data.waited && [0, ...data.waited];
  const of = Object.fromEntries(["wall", ...parts].map((name) => [name, lead(data[name])]));
  const stacked = [];
  parts.reduce((below, name) => {
    const sum = below.map((value, index) => value + of[name][index]);
    stacked.push(sum);
    return sum;
  }, new Array(t.length).fill(0));
  const at = new Map(n.map((number, index) => [number, t[index]]));
  const compiled = data.compiled.filter((number) => at.has(number)).map((number) => at.get(number));

  const probe = document.createElement("span");
  probe.hidden = true;
  holder.append(probe);
  const color = (value) => {
    probe.style.color = value;
    return getComputedStyle(probe).color;
  };
  const digits = (value) => (value >= 99.5 ? value.toFixed(0) : value >= 9.95 ? value.toFixed(1) : value.toFixed(2));
  const seconds = (value) => {
    for (const [scale, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) if (value >= scale * 0.9995) return `${digits(value / scale)} ${unit}`;
    return value > 0 ? `${digits(value * 1e9)} ns` : "0 s";
  };
  const percent = (value) => `${(100 * value).toFixed(1)} %`;

  const element = (tag, name, text) => {
    const made = document.createElement(tag);
    made.className = name;
    made.textContent = text || "";
    holder.append(made);
    return made;
  };
  const bar = element("div", "zoom");
  const range = element("p", "soft range");
  range.setAttribute("role", "status");
  const stage = element("div", "stage");
  stage.tabIndex = 0;
  stage.setAttribute("role", "group");
  stage.setAttribute("aria-label", "Time line of the steps. Arrow keys move the cursor, plus and minus zoom, page up and page down move the view, 0 shows all. The table below has the data.");
  const hover = element("p", "hover");

  let view = [data.warm, last];
  let charts = [];
  let busy = false;
  const first = (x) => {
    let low = 0, high = t.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (t[middle] < x) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const say = () => {
    const i = first(view[0]);
    const j = Math.max(i, t[first(view[1])] > view[1] ? first(view[1]) - 1 : first(view[1]));
    const count = n[j] - n[i];
    const span = t[j] - t[i];
    let text = count > 0 ? `Steps ${n[i] + 1} to ${n[j]} of ${n[n.length - 1]}: mean ${seconds(span / count)}` : "Less than a step";
    if (count > 0 && waited && span > 0) text += `, waiting for input ${percent((waited[j] - waited[i]) / span)}`;
    const many = compiled.filter((x) => x > t[i] && x <= t[j]).length;
    if (many) text += `, ${many} with tracing or compilation`;
    range.textContent = `${text}.`;
  };
  const go = (low, high) => {
    const least = Math.min(last, Math.max(last / 1e5, 1e-6));
    const width = Math.min(last, Math.max(least, high - low));
    const begin = Math.min(Math.max(0, low), last - width);
    view = [begin, begin + width];
    busy = true;
    for (const chart of charts) chart.setScale("x", { min: view[0], max: view[1] });
    busy = false;
    say();
  };
  const zoom = (factor, around = (view[0] + view[1]) / 2) =>
    go(around - (around - view[0]) * factor, around + (view[1] - around) * factor);
  const move = (share) => {
    const by = share * (view[1] - view[0]);
    go(view[0] + by, view[1] + by);
  };
  const point = (index) => {
    const words = [`Step ${n[index]} at ${seconds(t[index])}: ${seconds(of.wall[index])}`];
    let rest = of.wall[index];
    for (const name of parts) {
      words.push(`${names[name]} ${seconds(of[name][index])}`);
      rest -= of[name][index];
    }
    if (parts.length) words.push(`the step itself ${seconds(Math.max(0, rest))}`);
    hover.textContent = words.join(", ");
  };

  const shared = (height) => ({
    width: Math.max(200, stage.clientWidth),
    height,
    legend: { show: false },
    cursor: { sync: { key: "timeline" }, drag: { x: true, y: false }, y: false },
    scales: { x: { time: false, auto: false, min: view[0], max: view[1] } },
  });
  const axis = (more) => ({
    stroke: color("var(--soft)"),
    grid: { stroke: color("var(--rule)"), width: 1 },
    ticks: { stroke: color("var(--rule)") },
    font: "12px system-ui, sans-serif",
    ...more,
  });
  const hooks = {
    setScale: [
      (chart, key) => {
        if (key !== "x" || busy) return;
        const { min, max } = chart.scales.x;
        if (min !== view[0] || max !== view[1]) go(min, max);
      },
    ],
  };
  const draw = () => {
    for (const chart of charts) chart.destroy();
    const steps = color("var(--part-compute)");
    const stepped = uPlot.paths.stepped({ align: -1 });
    const series = [{}, { stroke: steps, fill: steps, width: 0, paths: stepped, points: { show: false } }];
    for (const name of [...parts].reverse()) {
      const fill = color(`var(--part-${name})`);
      series.push({ stroke: fill, fill, width: 0, paths: stepped, points: { show: false } });
    }
    const upper = new uPlot(
      {
        ...shared(230),
        scales: { ...shared(0).scales, y: { range: (_, __, max) => [0, (max || 1) * 1.05] } },
        axes: [axis({ values: (_, ticks) => ticks.map(seconds) }), axis({ size: 64, values: (_, ticks) => ticks.map(seconds) })],
        series,
        hooks: {
          ...hooks,
          setCursor: [(chart) => chart.cursor.idx != null && point(chart.cursor.idx)],
          drawClear: [
            (chart) => {
              if (data.warm <= view[0]) return;
              const { ctx, bbox } = chart;
              const x = chart.valToPos(0, "x", true);
              ctx.save();
              ctx.globalAlpha = 0.12;
              ctx.fillStyle = color("var(--ink)");
              ctx.fillRect(Math.max(bbox.left, x), bbox.top, Math.min(bbox.width, chart.valToPos(data.warm, "x", true) - Math.max(bbox.left, x)), bbox.height);
              ctx.restore();
            },
          ],
          draw: [
            (chart) => {
              const { ctx, bbox } = chart;
              ctx.save();
              ctx.fillStyle = color("var(--part-compile)");
              for (const x of compiled) {
                if (x < view[0] || x > view[1]) continue;
                const left = chart.valToPos(x, "x", true);
                ctx.beginPath();
                ctx.moveTo(left - 5, bbox.top);
                ctx.lineTo(left + 5, bbox.top);
                ctx.lineTo(left, bbox.top + 9);
                ctx.fill();
              }
              ctx.restore();
            },
          ],
        },
      },
      [t, of.wall, ...stacked.slice().reverse()],
      stage,
    );
    charts = [upper];
    if (data.use.length) {
      const times = [...new Set(data.use.flatMap((use) => use.t))].sort((a, b) => a - b);
      const values = data.use.map((use) => {
        const by = new Map(use.t.map((x, index) => [x, use.share[index]]));
        return times.map((x) => by.get(x));
      });
      const colors = ["var(--better)", "var(--part-transfer)", "var(--part-dispatch)", "var(--part-input)"];
      const lower = new uPlot(
        {
          ...shared(130),
          scales: { ...shared(0).scales, y: { range: [0, 1] } },
          axes: [axis({ values: (_, ticks) => ticks.map(seconds) }), axis({ size: 64, values: (_, ticks) => ticks.map((v) => `${Math.round(100 * v)} %`) })],
          series: [{}, ...values.map((_, index) => ({ stroke: color(colors[index % colors.length]), width: 1.6, spanGaps: true, points: { show: false } }))],
          hooks,
        },
        [times, ...values],
        stage,
      );
      charts.push(lower);
    }
    say();
  };

  for (const [text, act] of [
    ["Zoom in", () => zoom(0.5)],
    ["Zoom out", () => zoom(2)],
    ["Earlier", () => move(-0.5)],
    ["Later", () => move(0.5)],
    ...(data.warm > 0 ? [["Without warm-up", () => go(data.warm, last)]] : []),
    ["All steps", () => go(0, last)],
  ]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", act);
    bar.append(button);
  }
  stage.addEventListener("keydown", (event) => {
    const chart = charts[0];
    const idx = chart.cursor.idx ?? first(view[0]);
    const step = (by) => {
      const next = Math.min(t.length - 1, Math.max(1, idx + by));
      if (t[next] < view[0] || t[next] > view[1]) go(t[next] - (view[1] - view[0]) / 2, t[next] + (view[1] - view[0]) / 2);
      chart.setCursor({ left: chart.valToPos(t[next], "x"), top: 10 });
      point(next);
    };
    const act = {
      ArrowLeft: () => step(-1), ArrowRight: () => step(1), "+": () => zoom(0.5, t[idx]), "=": () => zoom(0.5, t[idx]),
      "-": () => zoom(2), PageUp: () => move(-0.5), PageDown: () => move(0.5), 0: () => go(0, last),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  stage.addEventListener("wheel", (event) => {
    if (!(event.ctrlKey || event.shiftKey)) return; // a page is scrolled with the wheel alone
    event.preventDefault();
    const over = charts[0].over.getBoundingClientRect();
    zoom(event.deltaY + event.deltaX > 0 ? 1.25 : 0.8, charts[0].posToVal(event.clientX - over.left, "x"));
  }, { passive: false });
  document.addEventListener("theme", draw);
  let width = 0;
  new ResizeObserver(() => {
    if (stage.clientWidth === width) return;
    width = stage.clientWidth;
    for (const chart of charts) chart.setSize({ width: Math.max(200, width), height: chart.height });
  }).observe(stage);
  draw();
  holder.dataset.ready = "yes";
})();
