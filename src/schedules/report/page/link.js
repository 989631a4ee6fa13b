
// ---- the view in the address, so that a link shows the same
// #plan=N&compare&t=START..END&follow=MICROBATCH,CHAIN&path&paper&no-memory
let toKeep = 0;
const linked = {text: () => linkText()};  // another page has more in its address
function keepLink() {
  clearTimeout(toKeep);
  toKeep = setTimeout(async () => history.replaceState(null, '', '#' + await linked.text()), 200);
}
function linkText() {
  const words = [];
  if (view.plan !== firstPlan) words.push(`plan=${view.plan}`);
  if (view.compare) words.push('compare');
  if (view.t0 > 0 || view.t1 < end) words.push(`t=${+view.t0.toPrecision(9)}..${+view.t1.toPrecision(9)}`);
  if (view.pinned) words.push(`follow=${view.pinned.row},${view.pinned.chain}`);
  if (view.path) words.push('path');
  if (view.paper) words.push('paper');
  if (hasMemory && !view.memory) words.push('no-memory');
  return words.join('&');
}
function readLink() {
  const words = new URLSearchParams(location.hash.slice(1));
  view.compare = words.has('compare');
  showPlan(words.get('plan'));
  const [t0, t1] = (words.get('t') || '').split('..').map(Number);
  const [row, chain] = (words.get('follow') || '').split(',').map(Number);
  view.path = words.has('path');
  view.paper = words.has('paper');
  view.memory = hasMemory && !words.has('no-memory');
  view.pinned = Number.isInteger(row) && Number.isInteger(chain) ? {row, chain} : null;
  if (t1 > t0) setView(t0, t1); else setView(0, end);
  showSwitches();
  layout();
}
