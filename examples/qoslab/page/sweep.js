// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// The page of a sweep: the frontier of the runs, and the means by value.

if (data.kind === "sweep") (() => {
  const markers = ["circle", "square", "triangle", "diamond"], symbols = ["●", "■", "▲", "◆"];
  const styles = data.policies.map((p, i) => ({color: palette[i], dash: dashes[i], marker: markers[i]}));
  const runsOf = data.policies.map(p => data.runs.filter(r => r.policy === p));
  const main = document.getElementById("charts"), bar = document.getElementById("bar");

  // frontierOf returns the runs that no other run dominates: none has more utilisation with no more evictions and kills.
  function frontierOf(runs) {
    const sorted = runs.slice().sort((a, b) => a.lost - b.lost || b.utilisation - a.utilisation);
    const kept = [];
    for (const r of sorted) if (!kept.length || r.utilisation > kept[kept.length - 1].utilisation) kept.push(r);
    return kept;
  }

  // meansOf returns the means of a field by value.
  function meansOf(runs, key) {
    const groups = new Map();
    for (const r of runs) groups.set(r.value, [...(groups.get(r.value) || []), r[key]]);
    return [...groups].sort((a, b) => a[0] - b[0]).map(([v, list]) => [v, list.reduce((a, b) => a + b, 0) / list.length]);
  }

  // addScatter adds a plot of runs as points, with a line per policy.
  function addScatter(parent, o) {
    const head = element(parent, "h3", "metric", o.title + " ");
    element(head, "small", "", o.unit);
    const bounds = key => data.runs.map(r => r[key]).reduce(([lo, hi], v) => [Math.min(lo, v), Math.max(hi, v)], [Infinity, -Infinity]);
    const [x0, x1] = bounds(o.x), margin = (x1 - x0 || 1) * .03, top = ceiling(bounds(o.y)[1]), bytes = data.bytes && o.x === "value";
    const xs = [x0 - margin, x1 + margin];
    const draw = u => {
      const c = u.ctx, d = devicePixelRatio, px = v => u.valToPos(v, "x", true), py = v => u.valToPos(v, "y", true);
      c.save();
      c.beginPath(); c.rect(u.bbox.left, u.bbox.top - 6, u.bbox.width, u.bbox.height + 12); c.clip();
      runsOf.forEach((runs, i) => {
        c.globalAlpha = .35;
        for (const r of runs) drawMarker(c, styles[i].marker, px(r[o.x]), py(r[o.y]), 3 * d, styles[i].color);
        c.globalAlpha = 1;
      });
      runsOf.forEach((runs, i) => {
        c.strokeStyle = styles[i].color; c.lineWidth = 2.5 * d; c.setLineDash(styles[i].dash.map(n => n * d));
        c.beginPath();
        o.line(runs).forEach(([x, y], k, all) => {
          if (k === 0) c.moveTo(px(x), py(y));
          else { if (o.steps) c.lineTo(px(all[k - 1][0]), py(y)); c.lineTo(px(x), py(y)); }
        });
        c.stroke();
      });
      c.restore();
      drawText(u, o.xTitle, u.bbox.left + u.bbox.width, u.bbox.top + u.bbox.height + 36 * d, "#59636e", "right");
    };
    addPlot(element(parent, "div", "chart"), {
      height: o.height, label: o.title, legend: {show: false}, padding: [12, 20, 14, 0],
      cursor: {drag: {x: true, y: false}, points: {show: false}},
      series: [{}, {stroke: "transparent", points: {show: false}}],
      scales: {x: {time: false, range: (u, min, max) => [min, max]}, y: {range: () => [0, top]}},
      axes: [xAxis(bytes ? {values: (u, list) => list.map(v => showMiB(v / 2 ** 20)), incrs: mebibyteSteps.map(n => n * 2 ** 20)} : {values: (u, list) => list.map(show)}), yAxis(58)], hooks: {draw: [draw]},
    }, [xs, [0, 0]]);
  }

  data.policies.forEach((p, i) => {
    element(bar, "span", "static key").innerHTML = `<span style="color:${styles[i].color}">${symbols[i]}</span>` + line(styles[i]) + escapeText(p);
  });
  element(bar, "span", "hint", "A point is a run. Drag in a plot to zoom, double-click to reset.");

  const grid = element(main, "div", "sweep");
  addScatter(grid, {
    title: "Frontier: utilisation against evictions", unit: "evictions and OOM kills per run; the line joins the runs that no other run of the policy dominates",
    x: "utilisation", y: "lost", xTitle: "memory in use, % of the machine (mean of the run)", height: 380, line: runs => frontierOf(runs).map(r => [r.utilisation, r.lost]), steps: true,
  });
  const pair = element(grid, "div", "columns");
  pair.style.gridTemplateColumns = "repeat(2, minmax(0, 1fr))";
  for (const o of [
    {title: "Memory in use", unit: "% of the machine; the line is the mean", y: "utilisation"},
    {title: "Evictions and OOM kills", unit: "per run; the line is the mean", y: "lost"},
    {title: "Memory pressure", unit: "% of the time in which a process waits (PSI some)", y: "memoryPressure"},
    {title: "Time not ready", unit: "seconds per run, sum of all pods", y: "notReady"},
  ].filter(o => data.runs.some(r => r[o.y] > 0))) {
    addScatter(element(pair, "div"), {...o, x: "value", xTitle: data.variable, height: 230, line: runs => meansOf(runs, o.y)});
  }
  window.addEventListener("beforeprint", () => plots.forEach((u, i) => u.setSize({width: i ? 500 : 1030, height: u.height})));
  window.addEventListener("afterprint", () => resize());
})();
