
// ---- the whole picture of a run, and the marked microbatch over it
function drawLabels(canvas, pen, rank) {
  const run = canvas.run, middle = rowTop(run, rank) + rowHeight / 2;
  pen.textBaseline = 'middle';
  pen.textAlign = 'left';
  pen.font = `${Math.min(13, rowHeight + 1)}px ${style.font}`;
  pen.fillStyle = style.ink;
  pen.fillText('rank ' + rank, 0, middle);
  pen.font = `${Math.min(12, rowHeight + 1)}px ${style.font}`;
  pen.fillStyle = style.muted;
  pen.fillText(run.idle[rank] + (style.isNarrow ? '' : ' idle'), plotEnd(canvas) + 10, middle);
}
function drawRun(canvas, pen) {
  const run = canvas.run, height = heightOf(run);
  pen.lineWidth = 1;
  run.lanes.forEach((lane, rank) => drawIdle(canvas, pen, rank));
  drawAxis(canvas, pen, height);
  run.lanes.forEach((lane, rank) => {
    pen.textBaseline = 'middle';
    pen.textAlign = 'center';
    drawLane(canvas, pen, rank);
    drawLinks(canvas, pen, rank);
    drawLabels(canvas, pen, rank);
    if (!withMemory(run)) return;
    drawMemory(canvas, pen, rank);
    drawMemoryAxis(canvas, pen, rank);
  });
}
function draw(canvas, onto) {
  const pen = onto.getContext('2d');
  pen.setTransform(canvas.ratio, 0, 0, canvas.ratio, 0, 0);
  pen.clearRect(0, 0, canvas.w, heightOf(canvas.run));
  drawRun(canvas, pen);
}
// From the action that computes an input to where its reader's rank has it.
function drawArrow(canvas, pen, rank, index) {
  const run = canvas.run, inputs = run.inputs[rank];
  if (!inputs || inputs.rank[index] < 0 || inputs.rank[index] === rank) return;
  const from = inputs.rank[index], computed = run.lanes[from].end[inputs.index[index]];
  if (inputs.ready[index] < view.t0 || computed > view.t1) return;
  const middle = (of) => rowTop(run, of) + rowHeight / 2;
  const x0 = toX(canvas, computed), x1 = toX(canvas, inputs.ready[index]);
  const y0 = middle(from) + Math.sign(rank - from) * rowHeight / 2;
  const y1 = middle(rank) - Math.sign(rank - from) * rowHeight / 2;
  pen.strokeStyle = pen.fillStyle = style.ink;
  pen.lineWidth = 1.2;
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
  const turn = Math.atan2(y1 - y0, x1 - x0);
  pen.beginPath();
  pen.moveTo(x1, y1);
  for (const side of [-0.4, 0.4]) pen.lineTo(x1 - 7 * Math.cos(turn + side), y1 - 7 * Math.sin(turn + side));
  pen.closePath();
  pen.fill();
}
function drawMarked(canvas, pen, mark) {
  const run = canvas.run;
  pen.fillStyle = style.card;
  pen.globalAlpha = 0.72;
  pen.fillRect(LEFT, AXIS, plotWidth(canvas), heightOf(run) - AXIS);
  pen.globalAlpha = 1;
  pen.textBaseline = 'middle';
  pen.textAlign = 'center';
  eachOf(run, mark, (rank, index) => {
    drawBlock(canvas, pen, run.lanes[rank], index, rowTop(run, rank), 2);
    drawArrow(canvas, pen, rank, index);
  });
}
// Draws the run, and the marked microbatch over it. What changes with the pointer lies over a copy of the picture in `base`,
// which is drawn when it is first needed: a copy takes as long as the picture where no GPU draws.
function compose(canvas) {
  if (!canvas.w) return;  // in a hidden frame; layout() draws it when it is shown
  const mark = view.hover || view.pinned, box = selectedBox(canvas);
  const until = view.until ?? null;  // what comes later is covered
  const covered = mark || box || until !== null;
  if (!covered && !canvas.hasBase) return draw(canvas, canvas);
  if (!canvas.hasBase) draw(canvas, canvas.base);
  canvas.hasBase = true;
  const pen = canvas.getContext('2d');
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(canvas.base, 0, 0);
  if (!covered) return;
  pen.setTransform(canvas.ratio, 0, 0, canvas.ratio, 0, 0);
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, plotWidth(canvas), heightOf(canvas.run));
  pen.clip();
  if (until !== null) {
    pen.fillStyle = style.card;
    pen.fillRect(Math.max(LEFT, toX(canvas, until)), AXIS, canvas.w, heightOf(canvas.run) - AXIS);
  }
  if (mark) drawMarked(canvas, pen, mark);
  if (box) drawSelected(pen, box);
  pen.restore();
}
// Draws only canvases on the screen. Others are drawn when they come into view.
const onScreen = new Set();
let waiting = false, stale = new Set();
function redraw(all = true) {
  if (all) stale = new Set(shown);
  for (const canvas of stale) canvas.hasBase = false;
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const canvas of shown) {
      if (!onScreen.has(canvas)) continue;
      stale.delete(canvas);
      compose(canvas);
    }
  });
}
const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) onScreen.add(entry.target); else onScreen.delete(entry.target);
  }
  if (stale.size) redraw(false);
});
// Draws what is shown at once. Widths, fonts and colors are as layout() read them.
function drawShown() {
  shown.forEach(resize);
  shown.forEach(compose);
  stale.clear();
}
// The page, its width or its colors have changed.
function layout() {
  if (!shown) return;  // the data come later
  readStyle();
  hatches.clear();
  for (const canvas of shown) canvas.w = canvas.clientWidth;
  drawShown();
}
const widths = new ResizeObserver((entries) => {
  if (entries.some(({target}) => shown.includes(target) && target.w !== target.clientWidth)) layout();
});
