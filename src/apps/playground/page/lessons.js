
// ---- lessons: each has a schedule to start from, a task with a target, a hint, and what it shows
// A target is a figure of a schedule of the catalog with the lesson's fields ("of"), or a part of the lower bound.
const LESSONS = [
  {name: 'One microbatch', state: {schedule: 'gpipe', fields: {ranks: '4', microbatches: '1', cost: '1,1,1'}},
   task: 'With one microbatch, only one rank works at a time. Add microbatches until the bubble is below 30%.',
   done: (figures) => figures.bubble < 0.3 && figures.ranks >= 4, hint: 'The bubble of GPipe is (p - 1) / (m + p - 1) for p ranks and m microbatches.',
   learned: 'Microbatches fill the pipeline: the time that it takes to fill and to drain stays, and the work between grows.'},
  {name: 'Memory', state: {schedule: 'gpipe', fields: {ranks: '4', microbatches: '8', cost: '1,1,1'}},
   task: 'GPipe keeps the activations of all 8 microbatches. Find a schedule that takes as long and keeps at most 4.',
   of: {schedule: 'gpipe', figure: 'makespan'}, done: (figures, target) => figures.makespan <= target * (1 + 1e-9) && figures.peak_memory <= 4,
   hint: 'A rank can run the backward of a microbatch as soon as its gradient arrives, one forward and one backward in turn.',
   learned: '1F1B limits the microbatches in flight to the number of ranks. It has the bubble of GPipe and needs less memory.'},
  {name: 'Chunks', state: {schedule: '1f1b', fields: {ranks: '4', microbatches: '8', cost: '1,1,1'}},
   task: 'Bring the bubble below 20% with 8 microbatches and whole backwards: no schedule of the zero bubble family.',
   done: (figures, _, now) => figures.bubble < 0.2 && figures.microbatches === 8 && !now.csv.includes('I0'),
   hint: 'Give each rank several small stages in place of one large one: interleaved, with 2 chunks.',
   learned: 'With v chunks, the pipeline fills v times faster. Its price is v times as many messages, and more activations.'},
  {name: 'Two backwards', state: {schedule: 'zb-h1', fields: {ranks: '4', microbatches: '6', cost: '1,1,1'}, spoil: true},
   task: 'A backward has two parts: I, which other ranks wait for, and W, which nobody waits for. Here each W follows its I. Move actions, ' +
         'or let the page improve the order, until the makespan is as short as in ZB-H1.',
   of: {schedule: 'zb-h1', figure: 'makespan'}, done: (figures, target) => figures.makespan <= target * (1 + 1e-9),
   hint: 'Drag W to the right, into the idle time at the end. Improve does it for you.',
   learned: 'W can wait. It fills the gaps in which a rank would have to wait for another one (Zero Bubble, section 2).'},
  {name: 'Zero bubble', state: {schedule: 'zb-h1', fields: {ranks: '4', microbatches: '8', cost: '1,1,1'}},
   task: 'Bring the span bubble below 1%: then no rank is idle between its first and its last action.',
   done: (figures) => figures.span_bubble < 0.01, hint: 'ZB-H2 starts more forwards before the first backward.',
   learned: 'With twice the activations of 1F1B, ranks need not wait at all. Optimizer steps then must not wait for each other (post-validation).'},
  {name: 'The V shape', state: {schedule: 'zb-h2', fields: {ranks: '4', microbatches: '8', cost: '1,1,1'}},
   task: 'Keep the span bubble below 1% with a peak memory of at most 4, as much as 1F1B.',
   done: (figures) => figures.span_bubble < 0.01 && figures.peak_memory <= 4 + 1e-9,
   hint: 'In ZBV, a rank has one stage of the way there and one of the way back, so that the last stage is on the first rank.',
   learned: 'In a V, ranks that keep many activations of one stage keep few of the other. Memory is balanced, and the gaps are closed.'},
  {name: 'Communication', state: {schedule: 'zbv', fields: {ranks: '4', microbatches: '8', cost: '1,1,1', comm: '0.4'}},
   task: 'Messages take 0.4 now. Find a schedule of these ranks and microbatches whose makespan is at most 5% longer than without communication.',
   of: {schedule: 'zbv', figure: 'makespan', without: 'comm'}, done: (figures, target, now, of) => figures.makespan <= 1.05 * target && of.fields.comm === '0.4' && figures.microbatches === 8,
   hint: 'Searches know the costs of messages. Compare all schedules, and look at v-auto and zb-auto.',
   learned: 'Fixed orders are made for messages that take no time. A search for the costs at hand hides most of them.'},
  {name: 'Two directions', state: {schedule: '1f1b', fields: {ranks: '4', microbatches: '16', cost: '1,1,1'}},
   task: 'DualPipe sends microbatches from both ends and runs a forward and a backward at once. Make it shorter than 1F1B, even if such a pair takes as long as its parts one after the other.',
   of: {schedule: '1f1b', figure: 'makespan'}, done: (figures, target, now, of) => of.schedule.startsWith('dualpipe') && of.fields.overlap === 'sum' && figures.makespan < target,
   hint: 'Choose dualpipe, and set the field overlap to sum among the further fields.',
   learned: 'A pair lets the communication of one part run below the other one. Each rank keeps two copies of the weights for it (DeepSeek-V3).'},
];
let lesson = null;  // {number, target, finished}

function showLessons() {
  byId('lessons').innerHTML = LESSONS.map(({name}, i) => `<li><button type="button" data-lesson="${i}">${name}</button></li>`).join('');
  byId('lessons').addEventListener('click', (event) => {
    const button = event.target.closest('[data-lesson]');
    if (button) beginLesson(Number(button.dataset.lesson));
  });
  byId('hint').addEventListener('click', () => { byId('hint-text').hidden = !byId('hint-text').hidden; });
}
async function beginLesson(number) {
  const {state: start, of, task, hint, name} = LESSONS[number];
  lesson = {number, target: null, finished: false};
  const mine = lesson, fields = {...start.fields}, fresh = {schedule: start.schedule, fields, stageCosts: null, csv: null};
  if (of) {
    const without = {...fields};
    delete without[of.without];
    const result = await naming.ask(questionOf('figures', {...fresh, schedule: of.schedule, fields: without}), 'target');
    if (!result || lesson !== mine) return;
    lesson.target = result[of.figure];
  }
  if (start.spoil) {
    const result = await naming.ask(questionOf('show', fresh), 'start');
    if (!result || lesson !== mine) return;
    fresh.csv = eachWithItsInput(result.csv);
  }
  byId('lesson').hidden = false;
  byId('task').innerHTML = `<b>${number + 1}. ${name}.</b> ${task}` + (lesson.target === null ? '' : ` ${dim(`Target: ${plain(lesson.target)}.`)}`);
  byId('hint-text').textContent = hint;
  byId('hint-text').hidden = true;
  byId('learned').hidden = true;
  change(fresh);
  byId('lesson').scrollIntoView({block: 'nearest'});
}
// The lanes with every W right after its I.
function eachWithItsInput(csv) {
  return csv.split('\n').map((line) => {
    const cells = line.split(',').filter((cell) => !/^\d+W\d+$/.test(cell));
    return cells.flatMap((cell) => /^\d+I\d+$/.test(cell) ? [cell, cell.replace('I', 'W')] : [cell]).join(',');
  }).join('\n');
}
function checkLesson() {
  if (!lesson || lesson.finished) return;
  const {done: isDone, learned} = LESSONS[lesson.number];
  if (!isDone(answer.exact, lesson.target, answer, state)) return;
  lesson.finished = true;
  byId('learned').hidden = false;
  byId('learned').innerHTML = `<b>Done.</b> ${learned}` + (lesson.number + 1 < LESSONS.length ? ` <button type="button" data-next>Next lesson</button>` : '');
  byId('learned').querySelector('[data-next]')?.addEventListener('click', () => beginLesson(lesson.number + 1));
  const button = document.querySelector(`[data-lesson="${lesson.number}"]`);
  if (!button.textContent.endsWith('\u2713')) button.textContent += ' \u2713';
  say('Done. ' + learned);
}
