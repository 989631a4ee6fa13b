
// ---- the controls: every field of a scenario that a page can give
let catalog = null;
// Fields that have a place of their own; the others are in the list of more fields.
const FIRST = ['ranks', 'chunks', 'microbatches', 'cost', 'comm', 'bandwidth', 'memory_limit'];

function makeControls() {
  const options = catalog.schedules.map(({name, summary}) => `<option value="${name}" title="${escapeText(summary)}">${name}</option>`);
  byId('schedule').innerHTML = options.join('');
  const more = catalog.fields.filter(({name}) => !FIRST.includes(name) && name !== 'pass' && name !== 'price');
  byId('more').innerHTML = more.map(({name, help, value}) =>
      `<label title="${escapeText(help).replaceAll('"', '&quot;')}">${name.replaceAll('_', ' ')}` +
      `<input data-field="${name}" placeholder="${escapeText(value)}" autocomplete="off"></label>`).join('');
  byId('schedule').addEventListener('change', () => change({schedule: byId('schedule').value, csv: null}));
  for (const input of document.querySelectorAll('[data-field]')) {
    input.addEventListener('input', () => setField(input.dataset.field, input.value.trim()));
  }
  byId('stages').addEventListener('change', toggleStages);
  byId('stage-costs').addEventListener('input', readStages);
}
// Lanes of a text have their own size, so they have an end if one of these changes (priced.h: WithoutShape).
const SHAPES = ['ranks', 'chunks', 'microbatches', 'group', 'slices', 'waves', 'steps', 'split', 'objective'];
// Passes and prices are lists, with blanks between.
const LISTS = ['pass', 'price', 'slow_rank'];
function setField(name, text) {
  const value = LISTS.includes(name) ? text.split(/\s+/).filter(Boolean) : text;
  const fields = {...state.fields, [name]: value};
  if (!value.length) delete fields[name];
  change({fields, csv: SHAPES.includes(name) ? null : state.csv});
}
function showControls() {
  byId('schedule').value = state.schedule;
  const of = catalog.schedules.find(({name}) => name === state.schedule);
  byId('about').textContent = state.csv === null && of ? `${of.summary}. ${of.source}` : 'Edited by hand.';
  for (const input of document.querySelectorAll('[data-field]')) {
    const value = state.fields[input.dataset.field] ?? '';
    const text = Array.isArray(value) ? value.join(' ') : value;
    if (document.activeElement !== input || input.value.trim() !== text) input.value = text;
    const reads = !of || state.csv !== null || of.reads.includes(input.dataset.field);
    input.closest('label').classList.toggle('unread', !reads);
  }
  byId('stages').checked = Boolean(state.stageCosts);
  byId('stage-costs').hidden = !state.stageCosts;
  if (state.stageCosts && !byId('stage-costs').contains(document.activeElement)) fillStages();
  byId('undo').disabled = !done.length;
  byId('redo').disabled = !undone.length;
  byId('keep').disabled = false;
}

// ---- costs of each stage
const STAGE_COSTS = ['forward', 'backward_input', 'backward_weight', 'activation'];
function toggleStages() {
  if (!byId('stages').checked) return change({stageCosts: null});
  const count = answer ? answer.page.runs[0].chunkOf.length : 4, chunks = answer ? answer.exact.chunks : 1;
  const [f, i = f, w = i] = (state.fields.cost || '1,1,1').split(',').map(Number);
  change({stageCosts: Array.from({length: count}, () => ({forward: f / chunks, backward_input: i / chunks, backward_weight: w / chunks, activation: 1 / chunks}))});
}
function fillStages() {
  const head = STAGE_COSTS.map((name) => `<th scope="col">${name.replace('_', ' ')}</th>`).join('');
  const rows = state.stageCosts.map((stage, i) => `<tr><th scope="row">stage ${i}</th>` + STAGE_COSTS.map((name) =>
      `<td><input aria-label="stage ${i}: ${name}" data-stage="${i}" data-cost="${name}" value="${stage[name]}"></td>`).join('') + '</tr>');
  byId('stage-costs').innerHTML = `<table><thead><tr><th></th>${head}</tr></thead><tbody>${rows.join('')}</tbody></table>`;
}
function readStages() {
  const stageCosts = state.stageCosts.map((stage) => ({...stage}));
  for (const input of document.querySelectorAll('[data-stage]')) {
    const value = Number(input.value), bad = input.value.trim() === '' || !(value >= 0) || !Number.isFinite(value);
    input.setAttribute('aria-invalid', bad);
    if (bad) return;
    stageCosts[input.dataset.stage][input.dataset.cost] = value;
  }
  change({stageCosts});
}
