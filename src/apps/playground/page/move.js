
// ---- moving an action by hand, by pointer or keys: legal places and their effect are shown before it is dropped
let moving = null;  // {canvas, rank, index, x, moved, places, target, event}

// The position in its lane of a drawn action of the first timeline.
const positionOf = (rank, index) => answer.positions[rank][index];

function beginMove(canvas, event) {
  const found = canvas.id === 'run0' && actionAt(canvas, event);
  if (!found || found.index < 0 || answered !== state) return false;
  moving = {canvas, rank: found.rank, index: found.index, x: event.clientX, moved: false, places: null, target: null, event};
  return true;
}
async function askPlaces(of) {
  of.places = undefined;
  const before = state, result = await live.ask(questionOf('places', state, {rank: of.rank, from: positionOf(of.rank, of.index)}));
  if (!result || moving !== of || state !== before) return;
  of.places = result;
  if (of.event) follow(of.event);
}
// The drawn index that the action gets if it is dropped at a time.
function targetAt({canvas, rank, index}, time) {
  const lane = canvas.run.lanes[rank];
  let before = 0;
  for (let k = 0; k < lane.length; ++k) if (k !== index && (lane.start[k] + lane.end[k]) / 2 < time) ++before;
  return before;
}
function follow(event) {
  const {canvas} = moving;
  moving.event = event;
  if (!moving.moved && Math.abs(event.clientX - moving.x) <= 4) return;
  if (!moving.moved) {
    moving.moved = true;
    mark(null);
    askPlaces(moving);
  }
  const time = toTime(canvas, event.clientX - canvas.getBoundingClientRect().left);
  moving.target = targetAt(moving, time);
  showTip(effectHtml(moving), event);
  compose(canvas);
  drawTarget(canvas);
}
function placeAt({places, rank, target}) {
  return places && places.places && places.places.find(({to}) => to === positionOf(rank, target));
}
// What the move would do, or why it cannot be made.
function effectHtml(of) {
  const name = partName(of.canvas.run, of.canvas.run.lanes[of.rank].parts(of.index)[0]);
  if (of.target === of.index) return `${name}<br>${dim('its place')}`;
  if (!of.places) return `${name}<br>${dim('...')}`;
  if (of.places.error) return `${name}<br>${escapeText(of.places.error.line)}`;
  const place = placeAt(of);
  if (!place) {
    const reason = of.target < of.index ? of.places.before : of.places.after;
    return `${name}<br><b class="bad">not here</b> ${escapeText(reason || 'this is too far for one move')}`;
  }
  const now = answer.exact, by = (value, text) => Math.abs(value) < 1e-12 * now.makespan ? 'as now' : signed(value, text);
  return `${name}<br>makespan <b>${timeText(place.makespan)}</b> ${dim(by(place.makespan - now.makespan, timeText))}<br>` +
         `peak memory <b>${memoryText(place.peak_memory)}</b> ${dim(by(place.peak_memory - now.peak_memory, memoryText))}`;
}
function drawTarget(canvas) {
  const {rank, index, target} = moving, lane = canvas.run.lanes[rank], pen = canvas.getContext('2d');
  const next = target < index ? target : target + 1;
  const time = next < lane.length ? lane.start[next] : lane.end[lane.length - 1];
  pen.setTransform(canvas.ratio, 0, 0, canvas.ratio, 0, 0);
  pen.fillStyle = moving.places && !placeAt(moving) && target !== index ? style.path : style.ink;
  pen.fillRect(toX(canvas, time) - 1.5, rowTop(canvas.run, rank) - 3, 3, rowHeight + 6);
  pen.strokeStyle = style.ink;
  pen.lineWidth = 2;
  const [x0, x1] = toSpan(canvas, lane.start[index], lane.end[index]);
  pen.strokeRect(x0, rowTop(canvas.run, rank), x1 - x0, rowHeight);
}
async function drop() {
  const {canvas, rank, index, target, moved} = moving, of = moving;
  moving = null;
  hideTip();
  compose(canvas);
  if (!moved || target === null || target === index) return;
  if (of.places && !placeAt(of)) return say('not moved: ' + (target < index ? of.places.before : of.places.after));
  await moveTo(rank, index, target);
}
// Moves the drawn action `index` of a rank. Returns whether it has moved.
async function moveTo(rank, index, target) {
  if (answered !== state) return false;
  const more = {rank, from: positionOf(rank, index), to: positionOf(rank, target)};
  const before = state, result = await live.ask(questionOf('move', state, more));
  if (!result || state !== before) return false;
  if (result.error || result.faults) {
    showMessage('Not moved: ' + (result.error || result.faults[0]).line);
    return false;
  }
  change({csv: result.csv}, result);
  return true;
}
function showMessage(words) {
  byId('message').textContent = words;
  byId('message').hidden = !words;
  say(words);
}
// Pointers reach the page's handlers first; the timeline's handlers see only what these leave.
function listenToMoves() {
  const stop = (event) => { event.stopPropagation(); event.preventDefault(); };
  document.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || !event.target.matches('canvas') || !beginMove(event.target, event)) return;
    if (event.isTrusted) event.target.setPointerCapture(event.pointerId);
  }, true);
  document.addEventListener('pointermove', (event) => {
    if (!moving) return;
    follow(event);
    if (moving.moved) stop(event);
  }, true);
  document.addEventListener('pointerup', (event) => {
    if (!moving) return;
    const {moved, canvas} = moving;
    if (moved) {
      stop(event);
      canvas.dispatchEvent(new PointerEvent('pointercancel', {bubbles: true}));
    }
    drop();
  }, true);
  document.addEventListener('keydown', async (event) => {
    const {target} = event;
    if (event.key === 'Escape' && moving) {
      const {canvas} = moving;
      moving = null;
      hideTip();
      return compose(canvas);
    }
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!by || !event.shiftKey || !selected || target.id !== 'run0' || !(selected.position & 1)) return;
    stop(event);
    const {canvas, rank, position} = selected, index = position >> 1, to = index + by;
    if (to < 0 || to >= canvas.run.lanes[rank].length) return;
    if (await moveTo(rank, index, to)) select({canvas, rank, position: 2 * to + 1});
  }, true);
}
