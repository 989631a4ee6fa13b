'use strict';
// The page's script: draws each run's timeline on a canvas; zoom, pan, hover and pinning are shared
// by all runs. Data comes from the element #data, written by html.cpp.
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const tip = document.getElementById('tip');
const PAIR = 255;
const LEFT = 62, RIGHT = 108, AXIS = 22;

// Lanes are flat: op, stage, microbatch index, start, end. A pair is PAIR, both parts, then the times.
function readLane(flat) {
  const blocks = [];
  for (let i = 0; i < flat.length;) {
    const parts = flat[i] === PAIR ? 2 : 1;
    if (parts === 2) ++i;
    const block = {parts: []};
    for (let k = 0; k < parts; ++k, i += 3) block.parts.push(flat.slice(i, i + 3));
    block.start = flat[i++];
    block.end = flat[i++];
    blocks.push(block);
  }
  return blocks;
}
for (const run of data.runs) {
  run.lanes = run.lanes.map(readLane);
  run.at = new Map();  // the same part in another run, for the tooltip
  run.lanes.forEach((lane) => lane.forEach((block) => block.parts.forEach(
      (part) => run.at.set(part.join(), block))));
}
const end = Math.max(...data.runs.map((run) => run.end)) || 1;
const most = Math.max(1e-300, ...data.runs.flatMap((run) => run.memory.map((curve) => {
  let top = 0;
  for (let i = 1; i < curve.length; i += 2) top = Math.max(top, curve[i]);
  return top;
})));
const view = {t0: 0, t1: end, hover: null, pinned: null, memory: data.runs.some((r) => r.memory.length)};

// ---- figures as text
const escapeText = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');
function plain(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(3);
  return String(+value.toPrecision(size >= 1000 ? 7 : 5));
}
function timeText(value) {
  if (data.timeUnit !== 's') return plain(value);
  if (value === 0) return '0 s';
  for (const [scale, name] of [[1, 's'], [1e-3, 'ms'], [1e-6, 'us']]) {
    if (Math.abs(value) >= scale) return +(value / scale).toPrecision(4) + ' ' + name;
  }
  return +(value * 1e9).toPrecision(4) + ' ns';
}
function memoryText(value) {
  if (data.memoryUnit !== 'B') return plain(value);
  for (const [scale, name] of [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) {
    if (value >= scale) return +(value / scale).toPrecision(3) + ' ' + name;
  }
  return Math.round(value) + ' B';
}
function microbatchText(run, index) {
  return run.slices > 1 ? Math.floor(index / run.slices) + '.' + (index % run.slices) : String(index);
}
function partName(run, part) {
  const microbatch = part[2] >= 0 ? ', microbatch ' + microbatchText(run, part[2]) : '';
  return `<b>${data.names[part[0]]}</b> stage ${part[1]}${microbatch}`;
}

// ---- layout
const ranks = Math.max(...data.runs.map((run) => run.lanes.length));
const rowHeight = ranks <= 8 ? 30 : ranks <= 16 ? 22 : ranks <= 32 ? 15 : 9;
const stripHeight = ranks <= 8 ? 20 : ranks <= 16 ? 14 : ranks <= 32 ? 9 : 6;
const gap = ranks <= 16 ? 6 : 3;
const withMemory = (run) => view.memory && run.memory.length > 0;
const pitch = (run) => rowHeight + gap + (withMemory(run) ? stripHeight + 2 : 0);
const chainOf = (run, stage) => Math.floor(stage / run.chainLength);
const sameMicrobatch = (run, block, mark) => block.parts.some(
    (part) => part[2] === mark.row && chainOf(run, part[1]) === mark.chain);
const heightOf = (run) => AXIS + run.lanes.length * pitch(run);

const canvases = data.runs.map((run, index) => {
  const canvas = document.getElementById('run' + index);
  canvas.run = run;
  return canvas;
});

function resize(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = heightOf(canvas.run);
  canvas.style.height = height + 'px';
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.ratio = ratio;
}
function toX(canvas, time) {
  return LEFT + (time - view.t0) / (view.t1 - view.t0) * (canvas.clientWidth - LEFT - RIGHT);
}
function toTime(canvas, x) {
  return view.t0 + (x - LEFT) / (canvas.clientWidth - LEFT - RIGHT) * (view.t1 - view.t0);
}
// First block that ends after the time.
function firstAfter(lane, time) {
  let low = 0, high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane[middle].end > time) high = middle; else low = middle + 1;
  }
  return low;
}
function tickStep(span, count) {
  const rough = span / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  for (const step of [1, 2, 5]) if (step * power >= rough) return step * power;
  return 10 * power;
}

// ---- drawing
let style;
function readStyle() {
  const of = getComputedStyle(document.documentElement);
  const get = (name) => of.getPropertyValue('--' + name).trim();
  style = {ink: get('ink'), muted: get('muted'), idle: get('idle'), grid: get('grid'),
           memory: get('memory'), font: getComputedStyle(document.body).fontFamily};
}
function drawAxis(canvas, pen, height) {
  const plot = canvas.clientWidth - LEFT - RIGHT;
  const step = tickStep(view.t1 - view.t0, plot / 90);
  pen.font = '12px ' + style.font;
  pen.textBaseline = 'middle';
  pen.textAlign = 'center';
  for (let tick = Math.ceil(view.t0 / step); tick * step <= view.t1 + step * 1e-9; ++tick) {
    const x = Math.round(toX(canvas, tick * step)) + 0.5;
    pen.fillStyle = style.muted;
    pen.fillText(timeText(+(tick * step).toPrecision(12)), x, AXIS / 2 - 2);
    pen.strokeStyle = style.grid;
    pen.beginPath();
    pen.moveTo(x, AXIS - 5);
    pen.lineTo(x, height);
    pen.stroke();
  }
}
function drawPart(pen, run, part, box, label) {
  const [fill, text] = run.colors[part[0]][run.chunkOf[part[1]] || 0];
  pen.fillStyle = fill;
  pen.fillRect(box.x, box.y, box.w, box.h);
  if (!label || part[2] < 0 || box.h < 9) return;
  const number = microbatchText(run, part[2]);
  const size = Math.min(12, box.h - 2);
  if (number.length * size * 0.6 > box.w - 2) return;
  pen.fillStyle = text;
  pen.font = `500 ${size}px ${style.font}`;
  pen.fillText(number, box.x + box.w / 2, box.y + box.h / 2 + 0.5);
}
function drawLane(canvas, pen, lane, y) {
  const plotEnd = canvas.clientWidth - RIGHT, run = canvas.run;
  const mark = view.hover || view.pinned;
  let drawn = -1;  // the last pixel column that a sliver was drawn in
  for (let i = firstAfter(lane, view.t0); i < lane.length && lane[i].start < view.t1; ++i) {
    const block = lane[i];
    const x0 = Math.max(LEFT, toX(canvas, block.start));
    const x1 = Math.min(plotEnd, toX(canvas, block.end));
    const sliver = x1 - x0 < 0.75;
    if (sliver && Math.floor(x0) === drawn) continue;
    if (sliver) drawn = Math.floor(x0);
    const box = {x: x0, y, w: Math.max(sliver ? 0.75 : 0.5, x1 - x0 - (x1 - x0 > 4 ? 1 : 0)), h: rowHeight};
    pen.globalAlpha = mark && !sameMicrobatch(run, block, mark) ? 0.25 : 1;
    if (block.parts.length === 1) {
      drawPart(pen, run, block.parts[0], box, !sliver);
    } else {
      const half = rowHeight / 2;
      drawPart(pen, run, block.parts[0], {...box, h: half}, !sliver);
      drawPart(pen, run, block.parts[1], {...box, y: y + half, h: half}, !sliver);
    }
  }
  pen.globalAlpha = 1;
}
function drawMemory(canvas, pen, curve, y) {
  const plotEnd = canvas.clientWidth - RIGHT, base = y + stripHeight;
  const level = (amount) => base - amount / most * (stripHeight - 1);
  pen.beginPath();
  pen.moveTo(LEFT, base);
  let held = 0, x = LEFT;
  for (let i = 0; i < curve.length; i += 2) {
    const at = Math.min(plotEnd, Math.max(LEFT, toX(canvas, curve[i])));
    pen.lineTo(at, level(held));
    held = curve[i + 1];
    pen.lineTo(at, level(held));
    x = at;
    if (curve[i] > view.t1) break;
  }
  pen.lineTo(Math.max(x, Math.min(plotEnd, toX(canvas, canvas.run.end))), level(held));
  pen.lineTo(Math.max(x, Math.min(plotEnd, toX(canvas, canvas.run.end))), base);
  pen.closePath();
  pen.fillStyle = style.memory;
  pen.globalAlpha = 0.28;
  pen.fill();
  pen.globalAlpha = 0.8;
  pen.strokeStyle = style.memory;
  pen.stroke();
  pen.globalAlpha = 1;
}
function draw(canvas) {
  const run = canvas.run, pen = canvas.getContext('2d');
  const width = canvas.clientWidth, height = heightOf(run);
  pen.setTransform(canvas.ratio, 0, 0, canvas.ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.lineWidth = 1;
  run.lanes.forEach((lane, rank) => {
    const y = AXIS + rank * pitch(run);
    const stop = Math.min(width - RIGHT, toX(canvas, run.end));
    pen.fillStyle = style.idle;
    pen.fillRect(LEFT, y, Math.max(0, stop - LEFT), rowHeight);
  });
  drawAxis(canvas, pen, height);
  run.lanes.forEach((lane, rank) => {
    const y = AXIS + rank * pitch(run);
    pen.textBaseline = 'middle';
    pen.textAlign = 'center';
    drawLane(canvas, pen, lane, y);
    if (withMemory(run)) drawMemory(canvas, pen, run.memory[rank], y + rowHeight + 2);
    pen.font = `${Math.min(13, rowHeight + 1)}px ${style.font}`;
    pen.textAlign = 'left';
    pen.fillStyle = style.ink;
    pen.fillText('rank ' + rank, 0, y + rowHeight / 2);
    pen.font = `${Math.min(12, rowHeight + 1)}px ${style.font}`;
    pen.fillStyle = style.muted;
    pen.fillText(run.idle[rank] + ' idle', width - RIGHT + 10, y + rowHeight / 2);
    if (withMemory(run) && stripHeight >= 9) {
      pen.fillText('peak ' + memoryText(run.peak[rank]), width - RIGHT + 10,
                   y + rowHeight + 2 + stripHeight / 2);
    }
  });
}
let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    canvases.forEach(draw);
  });
}
function layout() {
  readStyle();
  canvases.forEach(resize);
  canvases.forEach(draw);
}

// ---- looking around
function setView(t0, t1) {
  const span = Math.min(end, Math.max(t1 - t0, end * 1e-6));
  view.t0 = Math.min(Math.max(0, t0), end - span);
  view.t1 = view.t0 + span;
  redraw();
}
function zoom(factor, around) {
  const centre = around === undefined ? (view.t0 + view.t1) / 2 : around;
  setView(centre - (centre - view.t0) * factor, centre + (view.t1 - centre) * factor);
}
const pan = (share) => setView(view.t0 + share * (view.t1 - view.t0), view.t1 + share * (view.t1 - view.t0));
const fit = () => setView(0, end);

function blockAt(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top - AXIS;
  const rank = Math.floor(y / pitch(canvas.run));
  if (x < LEFT || x > canvas.clientWidth - RIGHT || rank < 0 || rank >= canvas.run.lanes.length) return null;
  const time = toTime(canvas, x), lane = canvas.run.lanes[rank];
  const block = lane[firstAfter(lane, time)];
  const inRow = y - rank * pitch(canvas.run) < rowHeight;
  if (!inRow) return {rank, time, block: null};
  return {rank, time, block: block && block.start <= time ? block : null};
}
function memoryAt(curve, time) {
  let held = 0;
  for (let i = 0; i < curve.length && curve[i] <= time; i += 2) held = curve[i + 1];
  return held;
}
function showTip(html, event) {
  tip.innerHTML = html;
  tip.style.opacity = 1;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.min(event.clientX + 14, innerWidth - box.width - 8) + 'px';
  tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12
                                                                 : event.clientY + 18) + 'px';
}
const hideTip = () => { tip.style.opacity = 0; };
function blockTip(canvas, found) {
  const {block, rank} = found;
  const lines = block.parts.map((part) => partName(canvas.run, part));
  lines.push(`<span class="dim">rank ${rank}, ${timeText(block.start)} to ${timeText(block.end)}</span>`);
  const runs = data.runs.filter((run) => run.schedule === canvas.run.schedule);
  for (const run of runs) {
    const other = run === canvas.run ? block : run.at.get(block.parts[0].join());
    const name = runs.length > 1 ? escapeText(run.label) + ':' : 'takes';
    if (other) lines.push(`${name} ${timeText(other.end - other.start)}`);
  }
  if (canvas.run.memory.length) {
    lines.push(`<span class="dim">memory held: ${memoryText(memoryAt(canvas.run.memory[rank], found.time))}</span>`);
  }
  return lines.join('<br>');
}
function hover(canvas, event) {
  const found = blockAt(canvas, event);
  const part = found && found.block && found.block.parts.find((p) => p[2] >= 0);
  const mark = part ? {row: part[2], chain: chainOf(canvas.run, part[1])} : null;
  if (JSON.stringify(mark) !== JSON.stringify(view.hover)) {
    view.hover = mark;
    redraw();
  }
  if (!found) return hideTip();
  if (found.block) return showTip(blockTip(canvas, found), event);
  const memory = canvas.run.memory.length
      ? '<br>memory held: ' + memoryText(memoryAt(canvas.run.memory[found.rank], found.time)) : '';
  showTip(`<b>rank ${found.rank}</b> at ${timeText(found.time)}${memory}`, event);
}

canvases.forEach((canvas) => {
  let drag = null;
  canvas.addEventListener('wheel', (event) => {
    // A page that scrolls must not be caught by the picture: zoom once it was clicked, or with Ctrl.
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const x = event.clientX - canvas.getBoundingClientRect().left;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / 800);
    else zoom(Math.exp(event.deltaY * 0.0018), toTime(canvas, x));
  }, {passive: false});
  canvas.addEventListener('pointerdown', (event) => {
    canvas.focus({preventScroll: true});
    drag = {x: event.clientX, t0: view.t0, t1: view.t1, moved: false};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!drag) return hover(canvas, event);
    if (Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
    if (!drag.moved) return;
    hideTip();
    canvas.style.cursor = 'grabbing';
    const shift = (drag.x - event.clientX) / (canvas.clientWidth - LEFT - RIGHT) * (drag.t1 - drag.t0);
    setView(drag.t0 + shift, drag.t1 + shift);
  });
  canvas.addEventListener('pointerup', () => {
    if (drag && !drag.moved) {
      view.pinned = view.hover;
      redraw();
    }
    drag = null;
    canvas.style.cursor = '';
  });
  canvas.addEventListener('pointerleave', () => {
    view.hover = null;
    hideTip();
    redraw();
  });
  canvas.addEventListener('dblclick', fit);
  canvas.addEventListener('keydown', (event) => {
    const keys = {ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), '+': () => zoom(0.7),
                  '=': () => zoom(0.7), '-': () => zoom(1 / 0.7), '0': fit,
                  Escape: () => { view.pinned = null; redraw(); }};
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
});
document.getElementById('in').onclick = () => zoom(0.6);
document.getElementById('out').onclick = () => zoom(1 / 0.6);
document.getElementById('fit').onclick = fit;
const box = document.getElementById('memory');
if (box) {
  box.onchange = () => {
    view.memory = box.checked;
    layout();
  };
}
addEventListener('resize', layout);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', layout);
layout();

// ---- plots: a crosshair with the values of the nearest point
document.querySelectorAll('svg.plot').forEach((svg, index) => {
  const plot = data.plots[index], cross = svg.querySelector('.cross');
  const [x0, x1, left, right] = svg.dataset.scale.split(' ').map(Number);
  svg.addEventListener('pointermove', (event) => {
    const bounds = svg.getBoundingClientRect();
    const px = (event.clientX - bounds.left) / bounds.width * svg.viewBox.baseVal.width;
    const x = x0 + (px - left) / (right - left) * (x1 - x0);
    const near = plot.series.map((series) => series.points.reduce(
        (best, point) => Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
    const at = left + (near[0][0] - x0) / (x1 - x0 || 1) * (right - left);
    cross.setAttribute('x1', at);
    cross.setAttribute('x2', at);
    cross.style.visibility = 'visible';
    showTip(`<span class="dim">${escapeText(plot.x)} ${plain(near[0][0])}</span><br>` + plot.series.map(
        (series, i) => `${escapeText(series.name)} <b>${plain(near[i][1])}</b>`).join('<br>'), event);
  });
  svg.addEventListener('pointerleave', () => {
    cross.style.visibility = 'hidden';
    hideTip();
  });
});
})();
