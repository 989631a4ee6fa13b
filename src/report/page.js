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
// Bubbles are flat: start, end, cause, rank of what it waits for; unless that is -1, its part.
function readBubbles(flat) {
  const bubbles = [];
  for (let i = 0; i < flat.length;) {
    const bubble = {start: flat[i], end: flat[i + 1], cause: flat[i + 2], rank: flat[i + 3]};
    i += 4;
    if (bubble.rank >= 0) bubble.part = flat.slice(i, i += 3);
    bubbles.push(bubble);
  }
  return bubbles;
}
for (const run of data.runs) {
  run.lanes = run.lanes.map(readLane);
  run.bubbles = (run.bubbles || []).map(readBubbles);
  const path = run.path || [];
  for (let i = 0; i < path.length; i += 2) run.lanes[path[i]][path[i + 1]].critical = true;
}
// The blocks of a run by chain and microbatch index, and by part. Each is made when first needed.
const chainOf = (run, stage) => Math.floor(stage / run.chainLength);
function collect(run, keyOf, add) {
  const blocks = new Map();
  run.lanes.forEach((lane, rank) => lane.forEach((block) => block.parts.forEach(
      (part) => add(blocks, keyOf(run, part), rank, block))));
  return blocks;
}
function blocksOf(run, mark) {
  run.byMicrobatch ||= collect(run, (of, part) => chainOf(of, part[1]) * 2 ** 32 + part[2], (all, key, rank, block) => {
    if (all.has(key)) all.get(key).push({rank, block}); else all.set(key, [{rank, block}]);
  });
  return run.byMicrobatch.get(mark.chain * 2 ** 32 + mark.row) || [];
}
function blockOf(run, part) {
  const keyOf = (of, [op, stage, row]) => (row * 65536 + stage) * 32 + op;
  run.byPart ||= collect(run, keyOf, (all, key, rank, block) => all.set(key, block));
  return run.byPart.get(keyOf(run, part));
}
const end = Math.max(...data.runs.map((run) => run.end)) || 1;
const most = Math.max(1e-300, ...data.runs.flatMap((run) => run.memory.map((curve) => {
  let top = 0;
  for (let i = 1; i < curve.length; i += 2) top = Math.max(top, curve[i]);
  return top;
})));
const view = {t0: 0, t1: end, hover: null, pinned: null, path: false, memory: data.runs.some((r) => r.memory.length)};

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
const heightOf = (run) => AXIS + run.lanes.length * pitch(run);

const canvases = data.runs.map((run, index) => {
  const canvas = document.getElementById('run' + index);
  canvas.run = run;
  canvas.base = document.createElement('canvas');  // the picture without a marked microbatch
  return canvas;
});

function resize(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const height = heightOf(canvas.run);
  canvas.style.height = height + 'px';
  canvas.w = canvas.clientWidth;  // reading it lays out the page, so only here
  canvas.width = canvas.base.width = Math.round(canvas.w * ratio);
  canvas.height = canvas.base.height = Math.round(height * ratio);
  canvas.ratio = ratio;
}
function toX(canvas, time) {
  return LEFT + (time - view.t0) / (view.t1 - view.t0) * (canvas.w - LEFT - RIGHT);
}
function toTime(canvas, x) {
  return view.t0 + (x - LEFT) / (canvas.w - LEFT - RIGHT) * (view.t1 - view.t0);
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
           memory: get('memory'), card: get('card'), path: get('path'), font: getComputedStyle(document.body).fontFamily};
}
function drawAxis(canvas, pen, height) {
  const plot = canvas.w - LEFT - RIGHT;
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
// Draws the part of a block that is in view, at least `least` pixels wide.
function drawBlock(canvas, pen, block, y, least) {
  const x0 = Math.max(LEFT, toX(canvas, block.start));
  const x1 = Math.min(canvas.w - RIGHT, toX(canvas, block.end));
  if (x1 < LEFT || x0 > canvas.w - RIGHT) return;
  const box = {x: x0, y, w: Math.max(least, x1 - x0 - (x1 - x0 > 4 ? 1 : 0)), h: rowHeight};
  const label = x1 - x0 >= 0.75, half = rowHeight / 2;
  if (block.parts.length === 1) return drawPart(pen, canvas.run, block.parts[0], box, label);
  drawPart(pen, canvas.run, block.parts[0], {...box, h: half}, label);
  drawPart(pen, canvas.run, block.parts[1], {...box, y: y + half, h: half}, label);
}
function drawLane(canvas, pen, lane, y) {
  const plotEnd = canvas.w - RIGHT;
  let drawn = -1;  // the last pixel column that a sliver was drawn in
  for (let i = firstAfter(lane, view.t0); i < lane.length && lane[i].start < view.t1; ++i) {
    const block = lane[i];
    const x0 = Math.max(LEFT, toX(canvas, block.start));
    const x1 = Math.min(plotEnd, toX(canvas, block.end));
    const sliver = x1 - x0 < 0.75;
    if (sliver && Math.floor(x0) === drawn) continue;
    if (sliver) drawn = Math.floor(x0);
    drawBlock(canvas, pen, block, y, sliver ? 0.75 : 0.5);
    if (!view.path || !block.critical) continue;
    pen.fillStyle = style.path;
    pen.fillRect(x0, y + rowHeight - 1, Math.max(1, x1 - x0), 3);
  }
}
// Idle time is hatched in the color of its cause.
const hatches = new Map();
function hatch(pen, color) {
  if (!hatches.has(color)) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const lines = tile.getContext('2d');
    lines.strokeStyle = color;
    lines.lineWidth = 1.2;
    for (const shift of [-6, 0, 6]) {
      lines.moveTo(shift, 6);
      lines.lineTo(shift + 6, 0);
    }
    lines.stroke();
    hatches.set(color, pen.createPattern(tile, 'repeat'));
  }
  return hatches.get(color);
}
function drawBubbles(canvas, pen, bubbles, y) {
  for (let i = firstAfter(bubbles, view.t0); i < bubbles.length && bubbles[i].start < view.t1; ++i) {
    const x0 = Math.max(LEFT, toX(canvas, bubbles[i].start));
    const x1 = Math.min(canvas.w - RIGHT, toX(canvas, bubbles[i].end));
    if (x1 - x0 < 1) continue;
    pen.fillStyle = hatch(pen, data.causes[bubbles[i].cause][1]);
    pen.fillRect(x0, y, x1 - x0, rowHeight);
  }
}
function drawMemory(canvas, pen, curve, y) {
  const plotEnd = canvas.w - RIGHT, base = y + stripHeight;
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
  const run = canvas.run, pen = canvas.base.getContext('2d');
  const width = canvas.w, height = heightOf(run);
  pen.setTransform(canvas.ratio, 0, 0, canvas.ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.lineWidth = 1;
  run.lanes.forEach((lane, rank) => {
    const y = AXIS + rank * pitch(run);
    const stop = Math.min(width - RIGHT, toX(canvas, run.end));
    pen.fillStyle = style.idle;
    pen.fillRect(LEFT, y, Math.max(0, stop - LEFT), rowHeight);
    if (run.bubbles.length) drawBubbles(canvas, pen, run.bubbles[rank], y);
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
// Copies the picture, and draws the marked microbatch over it.
function compose(canvas) {
  const pen = canvas.getContext('2d'), mark = view.hover || view.pinned, run = canvas.run;
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(canvas.base, 0, 0);
  if (!mark) return;
  pen.setTransform(canvas.ratio, 0, 0, canvas.ratio, 0, 0);
  pen.fillStyle = style.card;
  pen.globalAlpha = 0.72;
  pen.fillRect(LEFT, AXIS, canvas.w - LEFT - RIGHT, heightOf(run) - AXIS);
  pen.globalAlpha = 1;
  pen.textBaseline = 'middle';
  pen.textAlign = 'center';
  for (const {rank, block} of blocksOf(run, mark)) {
    drawBlock(canvas, pen, block, AXIS + rank * pitch(run), 2);
  }
}
let waiting = false, stale = false;
function redraw(all = true) {
  stale = stale || all;
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (stale) canvases.forEach(draw);
    stale = false;
    canvases.forEach(compose);
  });
}
function layout() {
  readStyle();
  hatches.clear();
  canvases.forEach(resize);
  canvases.forEach(draw);
  canvases.forEach(compose);
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
  if (x < LEFT || x > canvas.w - RIGHT || rank < 0 || rank >= canvas.run.lanes.length) return null;
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
    const other = run === canvas.run ? block : blockOf(run, block.parts[0]);
    const name = runs.length > 1 ? escapeText(run.label) + ':' : 'takes';
    if (other) lines.push(`${name} ${timeText(other.end - other.start)}`);
  }
  if (canvas.run.memory.length) {
    lines.push(`<span class="dim">memory held: ${memoryText(memoryAt(canvas.run.memory[rank], found.time))}</span>`);
  }
  return lines.join('<br>');
}
// Why the rank is idle, and what it waits for.
function idleTip(run, found) {
  const bubbles = run.bubbles[found.rank] || [];
  const bubble = bubbles[firstAfter(bubbles, found.time)];
  if (!bubble || bubble.start > found.time) return '';
  const lasts = `<br>idle for ${timeText(bubble.end - bubble.start)}: <b>${data.causes[bubble.cause][0]}</b>`;
  if (bubble.rank < 0) return lasts;
  return `${lasts}<br>waits for ${partName(run, bubble.part)} on rank ${bubble.rank}`;
}
function hover(canvas, event) {
  const found = blockAt(canvas, event);
  const part = found && found.block && found.block.parts.find((p) => p[2] >= 0);
  const mark = part ? {row: part[2], chain: chainOf(canvas.run, part[1])} : null;
  if (JSON.stringify(mark) !== JSON.stringify(view.hover)) {
    view.hover = mark;
    redraw(false);
  }
  if (!found) return hideTip();
  if (found.block) return showTip(blockTip(canvas, found), event);
  const memory = canvas.run.memory.length
      ? '<br>memory held: ' + memoryText(memoryAt(canvas.run.memory[found.rank], found.time)) : '';
  showTip(`<b>rank ${found.rank}</b> at ${timeText(found.time)}${idleTip(canvas.run, found)}${memory}`, event);
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
    const shift = (drag.x - event.clientX) / (canvas.w - LEFT - RIGHT) * (drag.t1 - drag.t0);
    setView(drag.t0 + shift, drag.t1 + shift);
  });
  canvas.addEventListener('pointerup', () => {
    if (drag && !drag.moved) {
      view.pinned = view.hover;
      redraw(false);
    }
    drag = null;
    canvas.style.cursor = '';
  });
  canvas.addEventListener('pointerleave', () => {
    view.hover = null;
    hideTip();
    redraw(false);
  });
  canvas.addEventListener('dblclick', fit);
  canvas.addEventListener('keydown', (event) => {
    const keys = {ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), '+': () => zoom(0.7),
                  '=': () => zoom(0.7), '-': () => zoom(1 / 0.7), '0': fit,
                  Escape: () => { view.pinned = null; redraw(false); }};
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
});
document.getElementById('in').onclick = () => zoom(0.6);
document.getElementById('out').onclick = () => zoom(1 / 0.6);
document.getElementById('fit').onclick = fit;
const pathBox = document.getElementById('path');
if (pathBox) {
  pathBox.onchange = () => {
    view.path = pathBox.checked;
    redraw();
  };
}
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
