// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

"use strict";
// The parts that both pages share: colours and dashes, plots, tables and the self-check.

const data = JSON.parse(document.getElementById("data").textContent);
const errors = [];
window.addEventListener("error", e => errors.push(e.message));

// Colours of Okabe and Ito, which readers with any colour vision can tell apart. Each also has dashes or a marker of its own.
const ink = "#1b1f24", rule = "#d8dee4", vermillion = "#D55E00";
const classStyles = {
  Guaranteed: {color: "#0072B2", dash: []},
  Burstable: {color: "#E69F00", dash: [9, 4]},
  BestEffort: {color: "#CC79A7", dash: [2, 3]},
};
const nodeStyle = {color: ink, dash: []};
const palette = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000"];
const dashes = [[], [9, 4], [2, 3], [9, 3, 2, 3]];
const podStyle = i => ({color: palette[i % palette.length], dash: dashes[(i % palette.length + Math.floor(i / palette.length)) % dashes.length]});
const font = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

// line returns an SVG with a sample of a style.
function line(style) {
  return `<svg width="26" height="8" aria-hidden="true"><line x1="1" x2="25" y1="4" y2="4" stroke="${style.color}" stroke-width="2.5" stroke-dasharray="${style.dash.join(" ")}"/></svg>`;
}

// element creates an element in a parent.
function element(parent, tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  parent.append(e);
  return e;
}

// escapeText returns text for innerHTML.
function escapeText(text) {
  const e = document.createElement("span");
  e.textContent = text;
  return e.innerHTML;
}

// showTime formats seconds.
function showTime(s) {
  s = Math.round(s);
  const pad = n => String(n).padStart(2, "0");
  const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return h ? `${h}:${pad(m)}:${pad(s % 60)}` : `${m}:${pad(s % 60)}`;
}

const timeSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

// show formats an amount with three significant digits.
function show(v) {
  if (v === null || v === undefined) return "";
  return v === 0 ? "0" : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : String(Number(v.toPrecision(3)));
}

// showMiB formats a number of MiB.
function showMiB(v) {
  return v === null || v === undefined ? "" : v === 0 ? "0" : v >= 1024 ? `${Number((v / 1024).toPrecision(3))} GiB` : `${Number(v.toPrecision(3))} MiB`;
}

const mebibyteSteps = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].concat([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].map(n => 1024 * n));

// ceiling returns the end of an axis that shows v.
function ceiling(v) {
  if (!(v > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(v));
  return [1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find(f => f * power >= v * 1.02) * power;
}

const plots = []; // all plots of the page

// yAxis and xAxis return axes with the style of the page.
const yAxis = (size, values) => ({size, font, space: 24, stroke: "#59636e", grid: {stroke: rule, width: 1}, ticks: {show: false}, gap: 6, values: values || ((u, list) => list.map(show))});
const xAxis = o => ({size: 30, font, stroke: "#59636e", grid: {stroke: rule, width: 1}, ticks: {stroke: rule, size: 4}, gap: 4, ...o});

// addPlot creates a plot in an element and remembers it. It resizes with the element.
function addPlot(parent, options, columns) {
  const u = new uPlot({width: Math.max(parent.clientWidth, 200), ...options}, columns, parent);
  u.root.setAttribute("role", "img");
  u.root.setAttribute("aria-label", options.label);
  plots.push(u);
  return u;
}

// removePlots removes all plots.
function removePlots() {
  for (const u of plots.splice(0)) u.destroy();
}

// resize fits all plots to a width, or to their elements.
function resize(width) {
  for (const u of plots) u.setSize({width: width || Math.max(u.root.parentElement.clientWidth, 200), height: u.height});
}
let pending = 0;
window.addEventListener("resize", () => { cancelAnimationFrame(pending); pending = requestAnimationFrame(() => resize()); });

// drawText draws a text onto a plot.
function drawText(u, text, x, y, color, align) {
  const c = u.ctx;
  c.fillStyle = color;
  c.font = font.replace("12px", `${11 * devicePixelRatio}px`);
  c.textAlign = align || "left";
  c.textBaseline = "middle";
  c.strokeStyle = "#fff";
  c.lineWidth = 3 * devicePixelRatio;
  c.setLineDash([]);
  c.strokeText(text, x, y);
  c.fillText(text, x, y);
}

// drawMarker draws a marker with this half size: a cross, a triangle, a circle or a square.
function drawMarker(c, shape, x, y, r, color) {
  c.strokeStyle = c.fillStyle = color;
  c.lineWidth = 2 * devicePixelRatio;
  c.setLineDash([]);
  c.beginPath();
  switch (shape) {
  case "cross":
    c.moveTo(x - r, y - r); c.lineTo(x + r, y + r); c.moveTo(x + r, y - r); c.lineTo(x - r, y + r);
    c.stroke();
    return;
  case "triangle":
    c.moveTo(x, y - r); c.lineTo(x + r, y + r); c.lineTo(x - r, y + r); c.closePath();
    break;
  case "square":
    c.rect(x - r, y - r, 2 * r, 2 * r);
    break;
  case "diamond":
    c.moveTo(x, y - 1.3 * r); c.lineTo(x + 1.3 * r, y); c.lineTo(x, y + 1.3 * r); c.lineTo(x - 1.3 * r, y); c.closePath();
    break;
  default:
    c.arc(x, y, r, 0, 2 * Math.PI);
  }
  c.fill();
}

// Tables are sorted by a click on a column: numbers from the largest first, texts in alphabetical order.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (head.classList.contains("unsorted")) return;
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sortTable(table, heads, column));
  });
}

function sortTable(table, heads, column) {
  const body = table.tBodies[0], rows = [...body.rows];
  const key = row => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  const numeric = typeof key(rows[0]) === "number";
  const sign = heads[column].getAttribute("aria-sort") === (numeric ? "descending" : "ascending") ? -1 : 1;
  rows.sort((a, b) => sign * (numeric ? key(b) - key(a) : key(a).localeCompare(key(b), "en", {numeric: true})));
  heads.forEach(h => h.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", (sign > 0) === numeric ? "descending" : "ascending");
  body.append(...rows);
}

// checkPage writes to the element self-check how many plots are drawn, and the errors of scripts.
function checkPage() {
  const drawn = plots.filter(u => {
    const {width, height} = u.ctx.canvas;
    if (!width || !height) return false;
    const pixels = u.ctx.getImageData(0, 0, width, height).data;
    let n = 0;
    for (let i = 3; i < pixels.length; i += 4) if (pixels[i]) n++;
    return n > 500;
  });
  const rows = [...document.querySelectorAll("table.sortable tbody tr")].length;
  document.getElementById("self-check").textContent = JSON.stringify({plots: plots.length, drawn: drawn.length, rows, errors});
}
window.addEventListener("load", () => setTimeout(checkPage, 100));
