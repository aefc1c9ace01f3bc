// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// The page of a comparison: a column of plots per policy, and a row per metric with equal axes.

if (data.kind === "compare") (() => {
  const metrics = [
    {key: "memory", title: "Memory", unit: "working set", node: true, bytes: true},
    {key: "cache", title: "Page cache", unit: "in memory, reclaimed when memory is short", node: true, bytes: true},
    {key: "cpu", title: "CPU", unit: "CPUs in use", node: true},
    {key: "throttled", title: "CPU throttling", unit: "CPUs that quotas keep from running"},
    {key: "cpuPressure", title: "CPU pressure", unit: "% of the time in which a process waits (PSI some)", node: true, least: 5, most: 103, of: "highest pod of the class"},
    {key: "memoryPressure", title: "Memory pressure", unit: "% of the time in which a process waits (PSI some)", node: true, least: 5, most: 103, of: "highest pod of the class"},
    {key: "disk", title: "Disk", unit: "writable layers, logs and volumes", bytes: true},
    {key: "lost", title: "Evictions and OOM kills", unit: "number so far", steps: true, least: 1, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]},
  ];
  const policies = data.policies, columns = `repeat(${policies.length}, minmax(0, 1fr))`;
  const main = document.getElementById("charts"), bar = document.getElementById("bar");
  const names = [...new Set(policies.flatMap(p => p.pods.map(t => t.name)))];
  const classes = ["Guaranteed", "Burstable", "BestEffort"].filter(c => policies.some(p => p.classes.some(t => t.name === c)));
  const hidden = new Set();
  let view = location.hash === "#view=pods" ? "pod" : "class", zoom = null, zooming = false, hovered = null;

  const styleOf = track => track === "node" ? nodeStyle : view === "class" ? classStyles[track] : podStyle(names.indexOf(track));
  const classOf = name => policies.flatMap(p => p.pods).find(t => t.name === name).class;
  const isShown = name => view === "class" ? !hidden.has(classOf(name)) : !hidden.has(name);
  const axisSize = () => Math.min(150, Math.max(58, ...names.map(n => 7 * n.length + 14)));

  // tracksOf returns what a plot of a policy shows: the classes and the node, or the pods.
  function tracksOf(policy, metric) {
    const list = (view === "class" ? policy.classes : policy.pods).slice();
    if (metric.node && view === "class") list.push(policy.node);
    return list;
  }

  // shareMax returns the end of the y axis of a metric, for all policies.
  function shareMax(metric) {
    let max = 0;
    for (const p of policies) for (const t of tracksOf(p, metric)) {
      if (hidden.has(t.name)) continue;
      for (const v of t[metric.key]) if (v > max) max = v;
      if (view === "pod" && metric.key === "memory" && t.memoryLimit) max = Math.max(max, Math.min(t.memoryLimit, data.memory));
    }
    if (metric.key === "memory" && max > data.memory / 2) return data.memory * 1.02;
    return Math.min(metric.most || Infinity, Math.max(metric.least || 0, ceiling(max)));
  }

  // seriesOf returns the series and the columns of a plot.
  function seriesOf(policy, metric) {
    const series = [{}], values = [policy.seconds];
    for (const t of tracksOf(policy, metric)) {
      const style = styleOf(t.name);
      series.push({
        label: t.name, show: !hidden.has(t.name), stroke: style.color, dash: style.dash, width: t.name === "node" ? 1 : 2, points: {show: false},
        ...(metric.steps && {paths: uPlot.paths.stepped({align: 1})}),
      });
      values.push(t[metric.key]);
      if (view === "pod" && t.name !== "node") addLimits(series, values, policy, metric, t, style);
    }
    return {series, values};
  }

  // addLimits adds the limits of a pod to a plot.
  function addLimits(series, values, policy, metric, t, style) {
    const add = (label, list) => {
      series.push({label, bound: true, show: !hidden.has(t.name), stroke: style.color, dash: [1, 3], width: 1.25, points: {show: false}});
      values.push(list);
    };
    const constant = v => t.memory.map(x => x === null ? null : v);
    if (metric.key === "memory" && t.memoryLimit) add(t.name + " limit", constant(t.memoryLimit));
    if (metric.key === "memory" && t.memoryHigh.some(v => v !== null)) add(t.name + " memory.high", t.memoryHigh);
    if (metric.key === "cpu" && t.cpuLimit) add(t.name + " limit", constant(t.cpuLimit));
  }

  // drawMarks draws the evictions and OOM kills, and in the plot of memory the eviction threshold.
  function drawMarks(u, policy, metric) {
    const c = u.ctx, {left, top, width, height} = u.bbox, d = devicePixelRatio;
    c.save();
    c.beginPath(); c.rect(left, top - 12 * d, width, height + 12 * d); c.clip();
    if (metric.key === "memory" && view === "class") {
      const y = u.valToPos(data.memory - policy.threshold, "y", true);
      if (y > top - 2) {
        c.strokeStyle = ink; c.lineWidth = d; c.setLineDash([6 * d, 4 * d]);
        c.beginPath(); c.moveTo(left, y); c.lineTo(left + width, y); c.stroke();
        drawText(u, `evicts below ${showMiB(policy.threshold)} available`, left + 6 * d, y + 9 * d, "#59636e");
      }
    }
    for (const m of policy.marks) {
      if (!isShown(m.pod)) continue;
      const x = u.valToPos(m.seconds, "x", true), color = m.kind === "oom" ? vermillion : ink;
      c.strokeStyle = color; c.lineWidth = d; c.setLineDash(m.kind === "oom" ? [2 * d, 3 * d] : []); c.globalAlpha = .45;
      c.beginPath(); c.moveTo(x, top); c.lineTo(x, top + height); c.stroke();
      c.globalAlpha = 1;
      drawMarker(c, m.kind === "oom" ? "triangle" : "cross", x, top - 5 * d, 4 * d, color);
    }
    c.restore();
  }

  // syncZoom zooms all plots as u.
  function syncZoom(u) {
    if (zooming) return;
    zooming = true;
    const {min, max} = u.scales.x;
    zoom = min <= 0 && max >= data.end ? null : {min, max};
    for (const other of plots) if (other !== u) other.setScale("x", {min, max});
    zooming = false;
  }

  const common = height => ({
    height, legend: {show: false}, padding: [14, 20, 0, 0],
    cursor: {sync: {key: "lab", setSeries: false}, drag: {x: true, y: false, setScale: true}, points: {size: 6}, y: false},
  });
  const xScale = () => ({time: false, min: 0, max: data.end, range: (u, min, max) => min === null ? [0, data.end] : [Math.max(min, 0), Math.min(max, data.end)]});

  // addTip shows the values at the cursor in the plots of a row.
  function addTip(u, policy, metric) {
    const tip = element(u.over, "div", "tip");
    tip.hidden = true;
    u.over.addEventListener("mouseenter", () => { hovered = metric.key; });
    u.over.addEventListener("mouseleave", () => { hovered = null; });
    u.tip = () => {
      const i = u.cursor.idx;
      tip.hidden = i === null || i === undefined || hovered !== metric.key;
      if (tip.hidden) return;
      const rows = u.series.map((s, k) => ({s, v: k && s.show ? u.data[k][i] : null})).filter(r => r.v !== null && r.v !== undefined && !r.s.bound);
      rows.sort((a, b) => b.v - a.v);
      tip.innerHTML = `<b>${showTime(u.data[0][i])}</b><table>` +
        rows.slice(0, 9).map(r => `<tr><td>${line(styleOf(r.s.label))}${escapeText(r.s.label)}</td><td>${(metric.bytes ? showMiB : show)(r.v)}</td></tr>`).join("") +
        (rows.length > 9 ? `<tr><td>${rows.length - 9} more</td><td></td></tr>` : "") + "</table>";
      const right = u.cursor.left > u.over.clientWidth / 2;
      tip.style.left = right ? "" : `${u.cursor.left + 12}px`;
      tip.style.right = right ? `${u.over.clientWidth - u.cursor.left + 12}px` : "";
      tip.style.top = "4px";
    };
  }

  // addMetric adds a plot of a metric for each policy.
  function addMetric(grid, metric) {
    const max = shareMax(metric), size = axisSize(), format = metric.bytes ? showMiB : show;
    const incrs = metric.bytes ? mebibyteSteps : metric.incrs;
    const head = element(grid, "h3", "metric", metric.title + " ");
    element(head, "small", "", metric.unit + (metric.of && view === "class" ? "; " + metric.of : ""));
    for (const policy of policies) {
      const {series, values} = seriesOf(policy, metric);
      const u = addPlot(element(grid, "div", "chart"), {
        ...common(metric.key === "memory" ? 230 : 150), label: `${metric.title} under policy ${policy.name}`, series,
        scales: {x: xScale(), y: {range: () => [0, max]}},
        axes: [xAxis({values: (u, list) => list.map(showTime), incrs: timeSteps}), {...yAxis(size, (u, list) => list.map(format)), ...(incrs && {incrs})}],
        hooks: {
          draw: [u => drawMarks(u, policy, metric)],
          setScale: [(u, key) => { if (key === "x" && u.status === 1) syncZoom(u); }],
          setCursor: [u => u.tip && u.tip()],
        },
      }, values);
      addTip(u, policy, metric);
    }
  }

  const states = {pending: {color: "#dfe3e8", text: "pending"}, ready: {color: "#56B4E9", text: "ready"}, notReady: {color: "#F0E442", text: "not ready"}, ended: {color: null, text: "ended"}};

  // drawLanes draws the states of the pods, and their evictions and OOM kills.
  function drawLanes(u, policy) {
    const c = u.ctx, {left, top, width, height} = u.bbox, d = devicePixelRatio, at = s => u.valToPos(s, "x", true);
    const lane = height / Math.max(names.length, 1);
    c.save();
    c.beginPath(); c.rect(left, top, width, height); c.clip();
    policy.pods.forEach((pod, k) => {
      const y = top + lane * names.indexOf(pod.name), bar = Math.min(lane * .62, 12 * d), y0 = y + (lane - bar) / 2;
      for (const s of policy.lanes[k] || []) {
        const state = states[s.State], x0 = at(s.From), x1 = at(s.To);
        if (!state.color) {
          c.strokeStyle = rule; c.lineWidth = d; c.setLineDash([2 * d, 3 * d]);
          c.beginPath(); c.moveTo(x0, y + lane / 2); c.lineTo(x1, y + lane / 2); c.stroke();
          continue;
        }
        c.fillStyle = state.color;
        const half = s.State === "ready" ? 0 : bar / 4; // readers of a black and white print see the height
        c.fillRect(x0, y0 + half, Math.max(x1 - x0, d), bar - 2 * half);
      }
    });
    for (const m of policy.marks) {
      const y = top + lane * (names.indexOf(m.pod) + .5);
      drawMarker(c, m.kind === "oom" ? "triangle" : "cross", at(m.seconds), y, Math.min(5 * d, lane * .4), m.kind === "oom" ? vermillion : ink);
    }
    c.restore();
  }

  // addLanes adds a plot with a lane per pod for each policy.
  function addLanes(grid) {
    const head = element(grid, "h3", "metric", "Pods ");
    element(head, "small", "", "state over time");
    for (const policy of policies) {
      const n = names.length;
      addPlot(element(grid, "div", "chart"), {
        ...common(n * (n > 14 ? 15 : 20) + 46), label: `States of pods under policy ${policy.name}`,
        series: [{}, {show: true, stroke: "transparent", points: {show: false}}],
        scales: {x: xScale(), y: {range: () => [0, n], dir: -1}},
        axes: [
          xAxis({values: (u, list) => list.map(showTime), incrs: timeSteps}),
          {...yAxis(axisSize(), (u, list) => list.map(v => names[Math.floor(v)] || "")), grid: {show: false}, splits: () => names.map((x, i) => i + .5)},
        ],
        hooks: {draw: [u => drawLanes(u, policy)], setScale: [(u, key) => { if (key === "x" && u.status === 1) syncZoom(u); }]},
      }, [policy.seconds, policy.seconds.map(() => n / 2)]);
    }
  }

  // showCharts draws all plots of the present view.
  function showCharts() {
    removePlots();
    main.replaceChildren();
    const grid = element(main, "div", "columns");
    grid.style.gridTemplateColumns = columns;
    for (const p of policies) element(grid, "div", "policy", p.name);
    const hasValues = metric => policies.some(p => tracksOf(p, metric).some(t => t[metric.key].some(v => v > 0)));
    for (const metric of metrics.filter(hasValues)) addMetric(grid, metric);
    addLanes(grid);
    const quiet = metrics.filter(m => !hasValues(m)).map(m => m.title.replace(/^[A-Z](?=[a-z])/, c => c.toLowerCase()));
    if (quiet.length) element(grid, "p", "hint quiet", `Without a plot, because zero throughout: ${quiet.join(", ")}.`);
    if (zoom) plots[0].setScale("x", zoom);
  }

  // showBar draws the legend, whose keys hide and show series, and the buttons.
  function showBar() {
    bar.replaceChildren();
    const views = element(bar, "span", "group");
    for (const [key, text] of [["class", "QoS classes"], ["pod", "Pods"]]) {
      const b = element(views, "button", "view", text);
      b.setAttribute("aria-pressed", view === key);
      b.addEventListener("click", () => { view = key; hidden.clear(); showBar(); showCharts(); });
    }
    for (const name of view === "class" ? classes : names) {
      const b = element(bar, "button", "key");
      b.innerHTML = line(styleOf(name)) + escapeText(name);
      b.setAttribute("aria-pressed", true);
      b.title = "Hide or show; with Shift: show only this one";
      b.addEventListener("click", e => {
        const all = view === "class" ? classes : names;
        if (e.shiftKey) { hidden.clear(); all.filter(n => n !== name).forEach(n => hidden.add(n)); } else if (!hidden.delete(name)) hidden.add(name);
        bar.querySelectorAll(".key").forEach((k, i) => k.setAttribute("aria-pressed", !hidden.has(all[i])));
        showCharts();
      });
    }
    const add = html => { element(bar, "span", "static").innerHTML = html; };
    if (view === "class") add(line(nodeStyle).replace("2.5", "1.25") + "node");
    add("<span>✕</span> evicted");
    add(`<span style="color:${vermillion}">▲</span> OOM kill`);
    if (view === "pod") add(line({color: "#59636e", dash: [1, 3]}) + "limit, memory.high");
    const swatch = (color, h) => `<svg width="16" height="10"><rect y="${(10 - h) / 2}" width="16" height="${h}" fill="${color}"/></svg>`;
    add(swatch(states.ready.color, 10) + "ready");
    add(swatch(states.notReady.color, 5) + "not ready");
    add(swatch(states.pending.color, 5) + "pending");
    const reset = element(bar, "button", "", "Reset zoom");
    reset.addEventListener("click", () => { zoom = null; plots[0].setScale("x", {min: 0, max: data.end}); });
    element(bar, "span", "hint", "Drag in a plot to zoom, double-click to reset.");
  }

  showBar();
  showCharts();

  // Print: plots of the width of a landscape page.
  const printWidth = Math.floor((1030 - 24 * (policies.length - 1)) / policies.length);
  window.addEventListener("beforeprint", () => resize(printWidth));
  window.addEventListener("afterprint", () => resize());
})();
