
// ---- the answer on the page: figures, timeline, text, faults
const byId = (id) => document.getElementById(id);
let answer = null;  // the last one that has a timeline
let answered = null;  // its state
let kept = null;    // a version to compare with: {answer, name}

let toSay = 0;
function say(words) {
  clearTimeout(toSay);
  toSay = setTimeout(() => { said.textContent = words; }, 100);
}
async function refresh() {
  const busy = setTimeout(() => { byId('busy').hidden = false; }, 250);
  const of = state, result = await live.ask(questionOf('show'));
  clearTimeout(busy);
  if (result && of === state) showAnswer(result);
}
function showAnswer(result) {
  const {error, faults} = result;
  byId('busy').hidden = true;
  showFaults(faults || [], error && !error.field && state.csv !== null ? error : null);
  showError(error);
  document.body.classList.toggle('stale', Boolean(error || faults));
  if (error || faults) return say(error ? error.line : `${faults.length} faults: ${faults[0].line}`);
  [answer, answered] = [result, state];
  if (document.activeElement !== byId('csv')) setText(state.csv ?? answer.csv);
  byId('legend').innerHTML = answer.legend;
  byId('unit').innerHTML = answer.unit;
  byId('tables').innerHTML = answer.tables;
  byId('command').textContent = answer.command;
  showTimelines();
  byId('figures').innerHTML = answer.figures.map(figureHtml).join('') + boundHtml();  // in the units of the data
  clearTimeout(toName);
  toName = setTimeout(nameIt, 300);
  byId('named').textContent = '';
  checkLesson();
  say(`${answer.caption}`);
}
const figureHtml = ({name, value, note}) =>
    `<div class="figure"><div class="name">${escapeText(name)}</div><div class="value">${escapeText(value)}</div>` +
    `<div class="note">${escapeText(note)}</div></div>`;
function boundHtml() {
  if (answer.bound === null) return '';
  const gap = answer.exact.makespan / answer.bound - 1;
  const note = answer.above_limit ? 'of schedules within the memory limit, which this one exceeds'
               : gap < 1e-9 ? 'no order of these stages is shorter' : `the makespan is ${(100 * gap).toFixed(1)}% above it`;
  return figureHtml({name: 'lower bound', value: timeText(answer.bound), note});
}
function showTimelines() {
  const runs = [answer, ...(kept ? [kept.answer] : [])], labels = ['this schedule', kept && kept.name];
  runs.forEach((each, i) => {
    byId('caption' + i).innerHTML = `<b>${escapeText(labels[i])}</b><span>${escapeText(each.caption)}</span>`;
    byId('run' + i).setAttribute('aria-label', `${labels[i]}: ${each.caption}`);
  });
  byId('other').hidden = !kept;
  byId('difference').textContent = kept ? differenceText() : '';
  const whole = !data || (view.t0 <= 0 && view.t1 >= end);
  setData({...answer.page, runs: runs.map((each) => each.page.runs[0])});
  data.runs.forEach((run, i) => { run.label = labels[i]; });
  select(null);
  view.hover = null;
  if (whole || view.t0 >= end) [view.t0, view.t1] = [0, end];
  view.t1 = Math.min(view.t1, end);
  if (shown.every((canvas) => canvas.w)) drawShown(); else layout();
  fillTexts();
}
function showError(error) {
  byId('error').hidden = !error;
  byId('error').textContent = error ? error.line : '';
  for (const input of document.querySelectorAll('[data-field]')) {
    input.setAttribute('aria-invalid', Boolean(error && input.dataset.field === error.field));
  }
}
let toName = 0;
async function nameIt() {
  if (answer.exact.actions > 20000) return;
  await sayName();
  compareAll(naming, false);
}
async function sayName() {
  if (state.csv === null) return;  // the page names it
  const of = answer, result = await naming.ask(questionOf('name'));
  if (!result || !result.names || of !== answer) return;
  // The catalog lists a schedule before those that have the same lanes with some of their options.
  const [name] = result.names;
  byId('named').textContent = name ? `These are the lanes of ${name}.` : 'No schedule of the catalog has these lanes.';
}

// ---- two versions
function keepVersion() {
  kept = {answer, name: state.csv === null ? state.schedule : 'kept version'};
  showTimelines();
}
function dropVersion() {
  kept = null;
  showTimelines();
}
const signed = (value, text) => (value > 0 ? '+' : '\u2212') + text(Math.abs(value));
function differenceText() {
  const now = answer.exact, then = kept.answer.exact, words = [];
  const differs = (name, text) => {
    const by = now[name] - then[name];
    return Math.abs(by) > 1e-12 * Math.abs(then[name]) ? signed(by, text) : 'the same';
  };
  words.push(`makespan ${differs('makespan', plain)}`, `peak memory ${differs('peak_memory', plain)}`);
  const cells = (text) => text.split('\n').map((line) => line.split(','));
  const a = cells(answer.csv), b = cells(kept.answer.csv);
  let moved = 0;
  a.forEach((lane, rank) => lane.forEach((cell, i) => { moved += cell !== (b[rank] || [])[i]; }));
  return `Compared with ${kept.name}: ${words.join(', ')}, ${moved} places of lanes have another action.`;
}
