
// ---- playback: the timeline up to a time, step by step
let playing = null;  // {time, timer}

function eventTimes() {
  const times = new Set();
  for (const lane of data.runs[0].lanes) for (let k = 0; k < lane.length; ++k) times.add(lane.end[k]);
  return [...times].sort((a, b) => a - b);
}
function showUntil(time) {
  view.until = time;
  redraw(false);
  byId('time').textContent = time === null ? '' : `time ${timeText(time)}`;
}
function stopPlaying() {
  if (playing) clearInterval(playing.timer);
  playing = null;
  byId('play').textContent = 'Play';
  showUntil(null);
}
function stepPlaying(by) {
  const times = eventTimes(), at = view.until ?? 0;
  const next = by > 0 ? times.find((time) => time > at * (1 + 1e-9)) : [0, ...times].findLast((time) => time < at * (1 - 1e-9));
  if (next === undefined) return stopPlaying();
  showUntil(next);
}
function play() {
  if (playing) {
    clearInterval(playing.timer);
    playing = null;
    byId('play').textContent = 'Play';
    return;
  }
  playing = {timer: setInterval(() => stepPlaying(1), 250)};
  byId('play').textContent = 'Pause';
}
