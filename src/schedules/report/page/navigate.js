
// ---- looking around: the same part of the time in all runs
function setView(t0, t1) {
  const span = Math.min(end, Math.max(t1 - t0, end * 1e-7));
  view.t0 = Math.min(Math.max(0, t0), end - span);
  view.t1 = view.t0 + span;
  redraw();
  fillTexts();
  keepLink();
}
function zoom(factor, around) {
  const centre = around === undefined ? (view.t0 + view.t1) / 2 : around;
  setView(centre - (centre - view.t0) * factor, centre + (view.t1 - centre) * factor);
}
const pan = (share) => setView(view.t0 + share * (view.t1 - view.t0), view.t1 + share * (view.t1 - view.t0));
const fit = () => setView(0, end);
function pin(microbatch) {
  view.pinned = microbatch;
  redraw(false);
  keepLink();
}

function onWheel(canvas, event) {
  // A page that scrolls must not be caught by the picture: zoom once it was clicked, or with Ctrl.
  if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
  event.preventDefault();
  const x = event.clientX - canvas.getBoundingClientRect().left;
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / 800);
  else zoom(Math.exp(event.deltaY * 0.0018), toTime(canvas, x));
}
function followPointer(canvas) {
  let drag = null;
  canvas.addEventListener('pointerdown', (event) => {
    select(null);
    canvas.focus({preventScroll: true});
    drag = {x: event.clientX, t0: view.t0, t1: view.t1, moved: false};
    if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!drag) return hover(canvas, event);
    if (Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
    if (!drag.moved) return;
    hideTip();
    canvas.style.cursor = 'grabbing';
    const shift = (drag.x - event.clientX) / plotWidth(canvas) * (drag.t1 - drag.t0);
    setView(drag.t0 + shift, drag.t1 + shift);
  });
  canvas.addEventListener('pointerup', () => {
    if (drag && !drag.moved) pin(view.hover);
    drag = null;
    canvas.style.cursor = '';
  });
  canvas.addEventListener('pointerleave', () => {
    mark(null);
    hideTip();
  });
}
const keys = {ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), '+': () => zoom(0.7), '=': () => zoom(0.7),
              '-': () => zoom(1 / 0.7), '0': fit, Escape: () => pin(null)};
function listenTo(canvas) {
  canvas.addEventListener('wheel', (event) => onWheel(canvas, event), {passive: false});
  canvas.addEventListener('dblclick', fit);
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey) return;
    const act = keyOfSelection(canvas, event.key) || keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  canvas.addEventListener('blur', () => select(null));
  followPointer(canvas);
}

// ---- controls; a page has only the controls that it needs
const control = (id) => document.getElementById(id);
function onControl(id, event, act) {
  if (control(id)) control(id).addEventListener(event, act);
}
onControl('in', 'click', () => zoom(0.6));
onControl('out', 'click', () => zoom(1 / 0.6));
onControl('fit', 'click', fit);
const switches = ['path', 'memory', 'paper', 'compare'];
function showSwitches() {
  for (const name of switches) if (control(name)) control(name).checked = view[name];
  document.body.classList.toggle('on-paper', view.paper);
}
for (const name of switches) {
  onControl(name, 'change', () => {
    view[name] = control(name).checked;
    showSwitches();
    showPlan(view.plan);
    layout();
    if (name === 'compare') fit(); else keepLink();
  });
}
addEventListener('resize', layout);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', layout);
// Paper is white.
addEventListener('beforeprint', () => {
  document.documentElement.classList.add('printed');
  layout();
});
addEventListener('afterprint', () => {
  document.documentElement.classList.remove('printed');
  layout();
});
