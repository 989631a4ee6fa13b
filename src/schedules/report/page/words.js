
// ---- the timelines in words: what is in view, once the reader opens it
const MOST_LINES = 2000;
function linesOf(run) {
  const lines = [];
  for (let rank = 0; rank < run.lanes.length; ++rank) {
    const lane = run.lanes[rank];
    lines.push(`rank ${rank}, ${run.idle[rank]} idle`);
    const last = 2 * lane.length;
    for (let at = 2 * lane.after(view.t0); at <= last; ++at) {
      const found = foundAt(run, rank, at);
      if (found && found.start >= view.t1) break;
      if (found) lines.push(`  ${timeText(found.start)} to ${timeText(found.end)}: ${wordsOf(run, found)}`);
      if (lines.length > MOST_LINES) return [...lines, `These are the first ${MOST_LINES} lines: zoom in to read on.`];
    }
  }
  return lines;
}
function wordsOf(run, {rank, index, time}) {
  const bubble = run.bubbles[rank] && run.bubbles[rank].at(time);
  if (index < 0) return 'idle' + (bubble ? `, ${data.causes[bubble.cause][0]}` : '');
  const names = run.lanes[rank].parts(index).map(([op, stage, row]) =>
      `${data.names[op]} stage ${stage}` + (row >= 0 ? `, microbatch ${microbatchText(run, row)}` : ''));
  return names.join(' with ');
}
function fillTexts() {
  data.runs.forEach((run, i) => {
    const box = document.getElementById('text' + i);
    if (box.open) box.querySelector('pre').textContent = linesOf(run).join('\n');
  });
}
