
// ---- what is asked: a schedule with its fields, or lanes as text. Everything on the page follows from it
let state = {schedule: '1f1b', fields: {ranks: '4', microbatches: '8', cost: '1,1,1'}, stageCosts: null, csv: null};
const undone = [], done = [];  // states as JSON, the latest last

function questionOf(ask, of = state, more = {}) {
  const fields = Object.fromEntries(Object.entries(of.fields).filter(([, value]) => value.length));
  const question = {ask, schedule: of.schedule, fields, ...more};
  if (of.stageCosts) {
    question.stage_costs = of.stageCosts;
    question.in_bytes = Boolean(of.inBytes);
    delete question.fields.cost;
  }
  if (of.topology) question.topology = of.topology;
  if (of.csv !== null) question.csv = of.csv;
  return question;
}
// Changes the state, and shows the schedule that follows. `answer`: the one to it, if it is known.
function change(to, answer = null) {
  const next = {...state, ...to};
  if (JSON.stringify(next) === JSON.stringify(state)) return;
  done.push(JSON.stringify(state));
  if (done.length > 500) done.shift();
  undone.length = 0;
  goTo(next, answer);
}
function goTo(next, answer = null) {
  state = next;
  showControls();
  if (answer) showAnswer(answer); else refresh();
  keepLink();
}
function undo() {
  if (!done.length) return;
  undone.push(JSON.stringify(state));
  goTo(JSON.parse(done.pop()));
}
function redo() {
  if (!undone.length) return;
  done.push(JSON.stringify(state));
  goTo(JSON.parse(undone.pop()));
}
