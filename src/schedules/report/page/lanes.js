
// ---- actions and idle time
function drawAxis(canvas, pen, height) {
  const step = tickStep(view.t1 - view.t0, plotWidth(canvas) / 90), unit = timeUnit(view.t1);
  pen.font = '12px ' + style.font;
  pen.textBaseline = 'middle';
  pen.textAlign = 'center';
  for (let tick = Math.ceil(view.t0 / step); tick * step <= view.t1 + step * 1e-9; ++tick) {
    const x = Math.round(toX(canvas, tick * step)) + 0.5;
    pen.fillStyle = style.muted;
    pen.fillText(tickText(tick * step / unit[0]), x, AXIS / 2 - 2);
    pen.strokeStyle = style.grid;
    pen.beginPath();
    pen.moveTo(x, AXIS - 5);
    pen.lineTo(x, height);
    pen.stroke();
  }
  pen.textAlign = 'left';
  pen.fillStyle = style.muted;
  pen.fillText(unit[1] ? `time, ${unit[1]}` : 'time', 0, AXIS / 2 - 2);
}
function drawPart(pen, run, [op, stage, row], box, label) {
  const [fill, text] = colorsOf(run, op, stage);
  pen.fillStyle = fill;
  pen.fillRect(box.x, box.y, box.w, box.h);
  if (!label || row < 0 || box.h < 9) return;
  const number = microbatchText(run, row);
  const size = Math.min(12, box.h - 2);
  if (number.length * size * 0.6 > box.w - 2) return;
  pen.fillStyle = text;
  pen.font = `500 ${size}px ${style.font}`;
  pen.fillText(number, box.x + box.w / 2, box.y + box.h / 2 + 0.5);
}
// Draws the part of an action that is in view, at least `least` pixels wide.
function drawBlock(canvas, pen, lane, index, y, least) {
  const [x0, x1] = toSpan(canvas, lane.start[index], lane.end[index]);
  if (x1 < LEFT || x0 > plotEnd(canvas)) return;
  const box = {x: x0, y, w: Math.max(least, x1 - x0 - (x1 - x0 > 4 ? 1 : 0)), h: rowHeight};
  const parts = lane.parts(index), half = rowHeight / 2;
  if (parts.length === 1) return drawPart(pen, canvas.run, parts[0], box, true);
  drawPart(pen, canvas.run, parts[0], {...box, h: half}, true);
  drawPart(pen, canvas.run, parts[1], {...box, y: y + half, h: half}, true);
}
// Actions narrower than this many pixels are drawn together.
const NARROW = 1.5;
// Narrow actions of a lane share columns, each divided by the time of each op, in the order of ops. What is left of its height is idle time. Columns are wide enough to hold several actions:
// otherwise a regular schedule would show a pattern that it does not have.
const COLUMN = 6;
class Columns {
  constructor(width, right) {
    Object.assign(this, {count: Math.ceil(width / COLUMN), right, byOp: new Map()});
  }
  add(x0, x1, op, share) {
    if (!this.byOp.has(op)) this.byOp.set(op, new Float32Array(this.count + 1));
    const filled = this.byOp.get(op), from = x0 / COLUMN, to = x1 / COLUMN;
    for (let column = Math.floor(from); column < to; ++column) {
      filled[column] += (Math.min(to, column + 1) - Math.max(from, column)) * share;
    }
  }
  draw(pen, y, fillOf) {
    const top = new Float32Array(this.count);
    for (const [op, filled] of [...this.byOp].sort((a, b) => a[0] - b[0])) {
      pen.fillStyle = fillOf(op);
      for (let column = 0; column < this.count; ++column) {
        if (filled[column] < 0.01) continue;
        const x = LEFT + column * COLUMN, height = filled[column] * rowHeight;
        pen.fillRect(x, y + top[column], Math.min(COLUMN, this.right - x), height);
        top[column] += height;
      }
    }
  }
}
function drawLane(canvas, pen, rank) {
  const run = canvas.run, lane = run.lanes[rank], critical = run.critical[rank], y = rowTop(run, rank);
  const columns = new Columns(plotWidth(canvas), plotEnd(canvas)), marked = [], wide = [];
  const width = plotWidth(canvas), scale = width / (view.t1 - view.t0);
  for (let i = lane.after(view.t0); i < lane.length && lane.start[i] < view.t1; ++i) {
    const x0 = Math.max(0, (lane.start[i] - view.t0) * scale);
    const x1 = Math.min(width, (lane.end[i] - view.t0) * scale);
    if (view.path && critical[i]) marked.push(LEFT + x0, LEFT + x1);
    if (x1 - x0 >= NARROW) {
      wide.push(i);
      continue;
    }
    const pair = lane.op2[i] !== NONE;
    columns.add(x0, x1, lane.op[i], pair ? 0.5 : 1);
    if (pair) columns.add(x0, x1, lane.op2[i], 0.5);
  }
  columns.draw(pen, y, (op) => (view.paper ? run.paper : run.colors)[op][0][0]);
  for (const i of wide) drawBlock(canvas, pen, lane, i, y, 0.5);
  drawPath(pen, marked, y);
}
function drawPath(pen, marked, y) {
  pen.fillStyle = style.path;
  for (let i = 0, drawn = -1; i < marked.length; i += 2) {
    if (marked[i + 1] <= drawn) continue;
    drawn = Math.max(marked[i + 1], marked[i] + 1);
    pen.fillRect(marked[i], y + rowHeight - 1, drawn - marked[i], 3);
  }
}
// Transfers to and from the slower pool, and collectives: a thin lane below the actions.
function drawLinks(canvas, pen, rank) {
  const run = canvas.run, lane = run.links[rank];
  if (!lane || !lane.length) return;
  const y = rowTop(run, rank) + rowHeight + 1;
  let drawn = -1;
  for (let i = lane.after(view.t0); i < lane.length && lane.start[i] < view.t1; ++i) {
    const [x0, x1] = toSpan(canvas, lane.start[i], lane.end[i]);
    if (x1 <= drawn) continue;
    drawn = Math.max(x1, x0 + 1);
    pen.fillStyle = colorsOf(run, lane.op[i], lane.stage[i])[0];
    pen.fillRect(x0, y, Math.max(1, drawn - x0 - (drawn - x0 > 3 ? 1 : 0)), LINKS - 1);
  }
}
// Idle time is hatched in the color and the pattern of its cause (page.css has the same in legends).
const HATCHES = ['M0 6L6 0M-6 6L0 0M6 6L12 0', 'M0 0L6 6M-6 0L0 6M6 0L12 6', 'M1 0V6M4 0V6', 'M0 1H6M0 4H6', 'M0 6L6 0M0 0L6 6', 'M2 3H4'];
const hatches = new Map();
function hatch(pen, color, cause) {
  if (pen.hatch) return pen.hatch(color, cause);
  const key = color + cause;
  if (!hatches.has(key)) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const lines = tile.getContext('2d');
    lines.strokeStyle = color;
    lines.lineWidth = 1.2;
    lines.stroke(new Path2D(HATCHES[cause]));
    hatches.set(key, pen.createPattern(tile, 'repeat'));
  }
  return hatches.get(key);
}
function drawIdle(canvas, pen, rank) {
  const run = canvas.run, y = rowTop(run, rank);
  const [left, stop] = toSpan(canvas, 0, run.end);
  pen.fillStyle = style.idle;
  pen.fillRect(left, y, Math.max(0, stop - left), rowHeight);
  const bubbles = run.bubbles[rank];
  if (!bubbles) return;
  for (let i = firstAbove(bubbles.end, view.t0); i < bubbles.all.length; ++i) {
    const bubble = bubbles.all[i];
    if (bubble.start >= view.t1) break;
    const [x0, x1] = toSpan(canvas, bubble.start, bubble.end);
    if (x1 - x0 < 1) continue;
    pen.fillStyle = hatch(pen, view.paper ? style.muted : data.causes[bubble.cause][1], bubble.cause);
    pen.fillRect(x0, y, x1 - x0, rowHeight);
  }
}
