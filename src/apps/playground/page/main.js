
// ---- the page
async function main() {
  await startEngines();
  catalog = await live.ask({ask: 'catalog'});
  makeControls();
  showLessons();
  listenToText();
  listenToMoves();
  listenToCompare();
  listenToShare();
  const acts = {undo, redo, improve, play, keep: keepVersion, drop: dropVersion, back: () => stepPlaying(-1), forth: () => stepPlaying(1), stop: stopPlaying,
                revert: () => change({csv: null})};
  for (const [id, act] of Object.entries(acts)) byId(id).addEventListener('click', act);
  byId('cancel').addEventListener('click', () => {
    live.cancel('show');
    byId('busy').hidden = true;
    showMessage('Cancelled: the page shows the schedule before.');
  });
  document.addEventListener('keydown', (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== 'z' || event.target.matches('input, textarea')) return;
    event.preventDefault();
    if (event.shiftKey) redo(); else undo();
  });
  document.addEventListener('click', (event) => { if (event.target.closest('button, summary')) byId('message').hidden = true; }, true);
  const opening = JSON.parse(byId('opening').textContent);
  if (opening) [state, kept] = [asState(opening.state), opening.kept];
  await readShared();
  readView();
  showControls();
  await refresh();
  addEventListener('hashchange', async () => {
    await readShared();
    goTo(state);
  });
  // For the console of the browser, and for tests.
  globalThis.penstock = {ask: (question) => naming.ask(question), state: () => state, answer: () => answer,
                         isShown: () => answered === state, link: linked.text};
  document.body.dataset.ready = 'true';
}
// Switches of the timeline that a link has.
function readView() {
  const words = new URLSearchParams(location.hash.slice(1));
  view.path = words.has('path');
  view.paper = words.has('paper');
  view.memory = !words.has('no-memory');
  for (const name of ['path', 'memory', 'paper']) control(name).checked = view[name];
}
main();
