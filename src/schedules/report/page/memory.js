
// ---- memory of each rank over time, by kind
const totalAt = (run, rank, time) =>
    run.memory.reduce((sum, kind) => sum + amountAt(kind.curves[rank], time), 0);
let highestPeak = 1, memoryTop = 1;  // of all runs
// A limit far above all peaks would flatten them.
const shownLimit = (run) => run.limit && run.limit <= 1.6 * highestPeak ? run.limit : 0;
function scaleMemory() {
  highestPeak = Math.max(1e-300, ...data.runs.flatMap((run) => run.memory.length ? run.peak : []));
  memoryTop = Math.max(highestPeak, ...data.runs.map(shownLimit));
}

// The largest amount in each column of pixels that is in view.
function columnsOf(canvas, curve) {
  const width = plotWidth(canvas), scale = width / (view.t1 - view.t0);
  const largest = new Float64Array(Math.max(1, Math.ceil(width))), last = largest.length;
  let i = 2 * pointsUntil(curve, view.t0), next = 0, held = i > 0 ? curve[i - 1] : 0;
  for (; i < curve.length && curve[i] < view.t1; i += 2) {
    const x = (curve[i] - view.t0) * scale, column = Math.floor(x);
    for (; next < x; ++next) largest[next] = Math.max(largest[next], held);
    held = curve[i + 1];
    if (held > largest[column]) largest[column] = held;
  }
  const stop = Math.min(last, Math.ceil((canvas.run.end - view.t0) * scale));
  for (; next < stop; ++next) largest[next] = Math.max(largest[next], held);
  return largest;
}
function drawMemory(canvas, pen, rank) {
  const run = canvas.run, base = stripTop(run, rank) + stripHeight;
  const y = (amount) => base - amount / memoryTop * (stripHeight - 1);
  let below = null;
  for (const kind of run.memory) {
    const above = columnsOf(canvas, kind.curves[rank]);
    if (below) above.forEach((amount, x) => { above[x] = amount + below[x]; });
    drawArea(pen, above, below, y, view.paper ? kind.paper : kind.color);
    below = above;
  }
  const limit = shownLimit(run);
  if (!limit) return;
  pen.fillStyle = style.path;
  for (let x = LEFT; x < plotEnd(canvas); x += 8) pen.fillRect(x, y(limit), 5, 1);
}
// Between two step functions of the columns; `below` may be null.
function drawArea(pen, above, below, y, color) {
  const count = above.length;
  pen.beginPath();
  pen.moveTo(LEFT, y(above[0]));
  for (let x = 1; x < count; ++x) {
    if (above[x] === above[x - 1]) continue;
    pen.lineTo(LEFT + x, y(above[x - 1]));
    pen.lineTo(LEFT + x, y(above[x]));
  }
  pen.lineTo(LEFT + count, y(above[count - 1]));
  pen.lineTo(LEFT + count, y(below ? below[count - 1] : 0));
  for (let x = count - 1; below && x > 0; --x) {
    if (below[x] === below[x - 1]) continue;
    pen.lineTo(LEFT + x, y(below[x]));
    pen.lineTo(LEFT + x, y(below[x - 1]));
  }
  pen.lineTo(LEFT, y(below ? below[0] : 0));
  pen.closePath();
  pen.fillStyle = color;
  pen.fill();
}
// The scale, left of the strip.
function drawMemoryAxis(canvas, pen, rank) {
  const run = canvas.run, y = stripTop(run, rank);
  pen.fillStyle = style.muted;
  if (stripHeight >= 9) {
    pen.textAlign = 'left';
    pen.fillText((style.isNarrow ? '' : 'peak ') + memoryText(run.peak[rank]), plotEnd(canvas) + 10, y + stripHeight / 2);
  }
  if (stripHeight < 18) return;
  pen.font = `10px ${style.font}`;
  pen.textAlign = 'right';
  pen.fillText(memoryText(memoryTop), LEFT - 6, y + 5);
  if (stripHeight >= 24) pen.fillText('0', LEFT - 6, y + stripHeight - 4);
  pen.fillRect(LEFT - 4, y, 4, 1);
  pen.fillRect(LEFT - 4, y + stripHeight - 1, 4, 1);
}
