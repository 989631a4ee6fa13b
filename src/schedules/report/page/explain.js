
// ---- what is under the pointer, in words
const tip = document.getElementById('tip');
function showTip(html, event) {
  tip.innerHTML = html;
  tip.style.opacity = 1;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(0, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + 'px';
  tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12
                                                                 : event.clientY + 18) + 'px';
}
const hideTip = () => { tip.style.opacity = 0; };
const dim = (html) => `<span class="dim">${html}</span>`;

// The rank, the time, and the action or -1, under the pointer.
function actionAt(canvas, event) {
  const box = canvas.getBoundingClientRect(), run = canvas.run;
  const x = event.clientX - box.left, y = event.clientY - box.top - AXIS;
  const rank = Math.floor(y / pitch(run));
  if (x < LEFT || x > plotEnd(canvas) || rank < 0 || rank >= run.lanes.length) return null;
  const time = toTime(canvas, x), lane = run.lanes[rank], index = lane.after(time);
  const inRow = y - rank * pitch(run) < rowHeight;
  const runs = inRow && index < lane.length && lane.start[index] <= time;
  return {rank, time, index: runs ? index : -1};
}
function memoryLines(run, rank, time) {
  if (!run.memory.length) return [];
  const kinds = run.memory.filter((kind) => amountAt(kind.curves[rank], time) > 0);
  if (run.memory.length === 1 || kinds.length === 0) {
    return [dim(`memory held: ${memoryText(totalAt(run, rank, time))}`)];
  }
  const all = kinds.map((kind) => `${kind.name} ${memoryText(amountAt(kind.curves[rank], time))}`);
  return [dim(`memory held: ${memoryText(totalAt(run, rank, time))}`), dim(all.join(', '))];
}
// How long the action takes in each run of the same schedule.
function durationLines(run, rank, index) {
  const runs = data.runs.filter((other) => other.schedule === run.schedule);
  return runs.flatMap((other) => {
    const at = other === run ? {rank, index} : findPart(other, run.lanes[rank].parts(index)[0]);
    if (!at) return [];
    const lane = other.lanes[at.rank], name = runs.length > 1 ? escapeText(other.label) + ':' : 'takes';
    return [`${name} ${timeText(lane.end[at.index] - lane.start[at.index])}`];
  });
}
// Why the action did not start earlier: its last input, or the rank.
function waitLines(run, rank, index) {
  const inputs = run.inputs[rank], lane = run.lanes[rank];
  const free = index > 0 ? lane.end[index - 1] : 0;
  const waited = lane.start[index] - free > 1e-9 * run.end;
  const before = () => `the rank, which ran ${partName(run, lane.parts(index - 1)[0])}`;
  if (!inputs || inputs.rank[index] < 0) return index > 0 && !waited ? [`waited for ${before()}`] : [];
  const from = inputs.rank[index], at = inputs.index[index], ready = inputs.ready[index];
  const producer = partName(run, run.lanes[from].parts(at)[0]) + (from === rank ? '' : ` on rank ${from}`);
  const computed = run.lanes[from].end[at], lines = [];
  const travel = ready - computed > 1e-9 * run.end ? `, here ${timeText(ready - computed)} later` : '';
  if (waited || index === 0) {
    lines.push(`waited for ${producer}`, dim(`computed by ${timeText(computed)}${travel}`));
  } else {
    if (from !== rank || at !== index - 1) {
      lines.push(dim(`its last input: ${producer}, ready ${timeText(lane.start[index] - ready)} before`));
    }
    lines.push(`waited for ${before()}`);
  }
  return lines;
}
// What the action sends to another rank, and how it changes the activations of its own.
function sizeLines(run, rank, index) {
  if (!run.sends) return [];
  const lines = [], sumOf = (table) => run.lanes[rank].parts(index).reduce(
      (sum, [op, stage]) => sum + (table[op] ? table[op][stage] : 0), 0);
  const sent = sumOf(run.sends), held = sumOf(run.holds);
  if (sent > 0) lines.push(dim(`sends ${bytesText(sent)}`));
  if (held) lines.push(dim(`activations ${held > 0 ? '+' : '\u2212'}${memoryText(Math.abs(held))}`));
  return lines;
}
function actionTip(run, {rank, index, time}) {
  const lane = run.lanes[rank];
  const lines = lane.parts(index).map((part) => partName(run, part));
  lines.push(dim(`rank ${rank}, ${timeText(lane.start[index])} to ${timeText(lane.end[index])}`));
  lines.push(...durationLines(run, rank, index), ...waitLines(run, rank, index), ...sizeLines(run, rank, index),
             ...memoryLines(run, rank, time));
  if (run.critical[rank][index]) lines.push('on the critical path');
  return lines.join('<br>');
}
// What would make such gaps shorter, by the name of the cause (explain/bubbles.h).
const REMEDIES = {
  'warm-up': 'more microbatches, or more chunks, make it a smaller part of the time',
  'drain': 'weight gradients (W) that wait until now would fill it, and more microbatches make it a smaller part',
  'communication': 'more forwards in flight, or other work at this time, would hide it',
  'transfer': 'an earlier start of the transfer, or a faster link, would hide it',
  'imbalance': 'more even stages, or another order of the actions that it waits for, would remove it',
  'memory limit': 'more memory, or an earlier backward, would let the forward start',
};
// Why the rank is idle, and what it waits for.
function idleTip(run, {rank, time}) {
  const lines = [`<b>rank ${rank}</b> at ${timeText(time)}`];
  const bubble = run.bubbles[rank] && run.bubbles[rank].at(time);
  if (bubble) {
    lines.push(`idle for ${timeText(bubble.end - bubble.start)}: <b>${data.causes[bubble.cause][0]}</b>`);
    if (bubble.rank >= 0) lines.push(`waits for ${partName(run, bubble.part)} on rank ${bubble.rank}`);
    lines.push(dim(REMEDIES[data.causes[bubble.cause][0]]));
  }
  return lines.concat(memoryLines(run, rank, time)).join('<br>');
}
// The first part with a microbatch, if it is an action that has one.
const microbatchOf = (run, {rank, index}) => index >= 0 && run.lanes[rank].parts(index).find((part) => part[2] >= 0);
const tipOf = (run, found) => found.index >= 0 ? actionTip(run, found) : idleTip(run, found);
function hover(canvas, event) {
  selected = null;
  const run = canvas.run, found = actionAt(canvas, event);
  const part = found && microbatchOf(run, found);
  mark(part ? {row: part[2], chain: chainOf(run, part[1])} : null);
  if (!found) return hideTip();
  showTip(tipOf(run, found), event);
}
function mark(microbatch) {
  if (JSON.stringify(microbatch) === JSON.stringify(view.hover)) return;
  view.hover = microbatch;
  redraw(false);
}
