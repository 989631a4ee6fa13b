
// ---- an action or a gap that keys select: Enter begins, arrows move, Enter follows its microbatch, Escape ends.
// Position 2k + 1 of a lane is action k, and 2k the gap before it.
let selected = null;  // {canvas, rank, position}
const said = document.getElementById('said');

// The selected action or gap as {rank, index, time} with its start and end, or null if there is no gap.
function foundAt(run, rank, position) {
  const lane = run.lanes[rank], k = position >> 1;
  if (position & 1) return {rank, index: k, time: lane.start[k], start: lane.start[k], end: lane.end[k]};
  const start = k > 0 ? lane.end[k - 1] : 0, stop = k < lane.length ? lane.start[k] : run.end;
  if (stop - start <= 1e-6 * run.end) return null;
  return {rank, index: -1, time: (start + stop) / 2, start, end: stop};
}
function positionAt(run, rank, time) {
  const lane = run.lanes[rank], k = Math.min(lane.after(time), lane.length - 1);
  const gap = lane.start[k] <= time ? null : foundAt(run, rank, 2 * k);
  return lane.end[k] <= time && foundAt(run, rank, 2 * k + 2) ? 2 * k + 2 : gap ? 2 * k : 2 * k + 1;
}
function select(choice) {
  if (!choice && !selected) return;
  selected = choice;
  if (!choice) {
    mark(null);
    hideTip();
    return redraw(false);
  }
  const {canvas, rank, position} = choice, run = canvas.run, found = foundAt(run, rank, position);
  const span = view.t1 - view.t0;
  const isPart = span < (1 - 1e-9) * end;
  if (isPart && (found.start < view.t0 || found.start > view.t1 - span / 20)) setView(found.start - span / 3, found.start + 2 * span / 3);
  const part = microbatchOf(run, found);
  mark(part ? {row: part[2], chain: chainOf(run, part[1])} : null);
  const html = tipOf(run, found), box = canvas.getBoundingClientRect();
  const y = box.top + rowTop(run, rank);
  if (y < 0 || y + rowHeight > innerHeight) scrollBy(0, y - innerHeight / 2);
  const [x0, x1] = toSpan(canvas, found.start, found.end);
  showTip(html, {clientX: box.left + (x0 + x1) / 2, clientY: canvas.getBoundingClientRect().top + rowTop(run, rank) + rowHeight});
  said.textContent = tip.innerText;
  redraw(false);
}
function step(by) {
  const run = selected.canvas.run, last = 2 * run.lanes[selected.rank].length;
  for (let at = selected.position + by; at >= 0 && at <= last; at += by) {
    if (foundAt(run, selected.rank, at)) return select({...selected, position: at});
  }
}
function toRank(by) {
  const run = selected.canvas.run, rank = selected.rank + by;
  if (rank < 0 || rank >= run.lanes.length || !run.lanes[rank].length) return;
  const {start, end: stop} = foundAt(run, selected.rank, selected.position);
  select({...selected, rank, position: positionAt(run, rank, (start + stop) / 2)});
}
// What the key does to the selection; nothing if it does something else.
function keyOfSelection(canvas, key) {
  if (!selected) {
    const rank = canvas.run.lanes.findIndex((lane) => lane.length);
    const first = () => select({canvas, rank, position: positionAt(canvas.run, rank, view.t0)});
    return key === 'Enter' && rank >= 0 ? first : null;
  }
  const acts = {ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => toRank(-1), ArrowDown: () => toRank(1),
                Enter: () => pin(view.hover), Escape: () => select(null)};
  return acts[key];
}
// Its place in the picture, if it is of this canvas.
function selectedBox(canvas) {
  if (!selected || selected.canvas !== canvas) return null;
  const {start, end: stop} = foundAt(canvas.run, selected.rank, selected.position);
  const [x0, x1] = toSpan(canvas, start, stop);
  return {x: x0, y: rowTop(canvas.run, selected.rank), w: Math.max(3, x1 - x0), h: rowHeight};
}
function drawSelected(pen, {x, y, w, h}) {
  pen.strokeStyle = style.ink;
  pen.lineWidth = 2;
  pen.strokeRect(x, y, w, h);
}
