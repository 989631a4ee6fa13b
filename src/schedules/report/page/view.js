
// ---- what is in view, and where
let LEFT = 66, RIGHT = 108;  // readStyle
const AXIS = 22, LINKS = 6;
let hasMemory = false, canvases = [];  // one per run (setData)
// The timelines that are on the page: all, or one plan's (choose.js). They share the axis of time and the height of rows.
let shown, end, rowHeight, stripHeight, gap;
function showRuns(some) {
  shown = some;
  end = Math.max(0, ...shown.map((canvas) => canvas.run.end)) || 1;
  const ranks = Math.max(0, ...shown.map((canvas) => canvas.run.lanes.length));
  rowHeight = ranks <= 8 ? 30 : ranks <= 16 ? 22 : ranks <= 32 ? 15 : 9;
  stripHeight = ranks <= 8 ? 30 : ranks <= 16 ? 18 : ranks <= 32 ? 9 : 6;
  gap = ranks <= 16 ? 6 : 3;
}
const view = {t0: 0, t1: 1, plan: null, hover: null, pinned: null, path: false, memory: true, paper: false, compare: false};

const withMemory = (run) => view.memory && run.memory.length > 0;
const linksHeight = (run) => run.links.some((lane) => lane.length) ? LINKS + 1 : 0;
const pitch = (run) => rowHeight + linksHeight(run) + gap + (withMemory(run) ? stripHeight + 2 : 0);
const heightOf = (run) => AXIS + run.lanes.length * pitch(run);
const rowTop = (run, rank) => AXIS + rank * pitch(run);
const stripTop = (run, rank) => rowTop(run, rank) + rowHeight + linksHeight(run) + 2;

function resize(canvas) {
  const ratio = window.devicePixelRatio || 1, height = heightOf(canvas.run);
  const pixels = {width: Math.round(canvas.w * ratio), height: Math.round(height * ratio)};
  canvas.style.height = height + 'px';
  for (const picture of [canvas, canvas.base]) {
    if (picture.width !== pixels.width || picture.height !== pixels.height) Object.assign(picture, pixels);  // empties it
  }
  canvas.ratio = ratio;
  canvas.hasBase = false;
}
// A window may be narrower than what is left and right of the lanes.
const plotWidth = (canvas) => Math.max(1, canvas.w - LEFT - RIGHT);
const plotEnd = (canvas) => LEFT + plotWidth(canvas);
function toX(canvas, time) {
  return LEFT + (time - view.t0) / (view.t1 - view.t0) * plotWidth(canvas);
}
function toTime(canvas, x) {
  return view.t0 + (x - LEFT) / plotWidth(canvas) * (view.t1 - view.t0);
}
// The positions of two times, cut to the picture.
function toSpan(canvas, start, stop) {
  return [Math.max(LEFT, toX(canvas, start)), Math.min(plotEnd(canvas), toX(canvas, stop))];
}
function tickStep(span, count) {
  const rough = span / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  for (const step of [1, 2, 5]) if (step * power >= rough) return step * power;
  return 10 * power;
}

let style;
function readStyle() {
  const isNarrow = document.body.clientWidth < 520;
  [LEFT, RIGHT] = isNarrow ? [54, 72] : [66, 108];
  const of = getComputedStyle(document.documentElement);
  style = {font: getComputedStyle(document.body).fontFamily, isNarrow};
  for (const name of ['ink', 'muted', 'idle', 'grid', 'card', 'path']) {
    style[name] = of.getPropertyValue('--' + name).trim();
  }
}
// [block, text] of a part.
function colorsOf(run, op, stage) {
  return (view.paper ? run.paper : run.colors)[op][run.chunkOf[stage] || 0];
}
