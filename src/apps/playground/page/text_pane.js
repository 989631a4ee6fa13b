
// ---- the lanes as text, with faults marked where they are
let faults = [];

// The cells of a line: {start, end, text}, as the reader of CSVs takes them.
function cellsOf(line) {
  const cells = [];
  for (let at = 0; at <= line.length;) {
    const quoted = /^\s*"(?:[^"]|"")*"/.exec(line.slice(at));
    let stop = line.indexOf(',', at + (quoted ? quoted[0].length : 0));
    if (stop < 0) stop = line.length;
    cells.push({start: at, end: stop, text: line.slice(at, stop).trim()});
    at = stop + 1;
  }
  return cells;
}
// Returns [start, end] of a fault in the text, or null. A lane's blank cells have no action.
function placeOf(fault, text) {
  const lines = text.split('\n'), starts = [];
  lines.reduce((at, line) => { starts.push(at); return at + line.length + 1; }, 0);
  if (fault.line !== undefined && fault.rank === undefined) {
    const cell = cellsOf(lines[fault.line - 1] || '')[fault.column - 1];
    return cell ? [starts[fault.line - 1] + cell.start, starts[fault.line - 1] + cell.end] : null;
  }
  const first = /^[^,\n]*=/.test(text) && !/^\s*"?\s*#?\s*"/.test(lines[0]) ? 1 : 0, line = fault.rank + first;
  if (fault.rank < 0 || line >= lines.length) return null;
  const cells = cellsOf(lines[line]).filter(({text: cell}) => /\d/.test(cell) && !cell.includes('='));
  const cell = cells[fault.position];
  return cell ? [starts[line] + cell.start, starts[line] + cell.end] : [starts[line], starts[line] + lines[line].length];
}
function showFaults(list, error) {
  if (!list.length && !error && !faults.length) return;
  const where = error && /line (\d+), column (\d+)/.exec(error.line);
  faults = list.map((fault) => ({...fault, words: fault.line, line: undefined}));
  if (where) faults.push({line: Number(where[1]), column: Number(where[2]), words: error.line});
  byId('faults').innerHTML = faults.slice(0, 20).map((fault, i) => `<li><button type="button" data-fault="${i}">${escapeText(fault.words)}</button></li>`).join('');
  byId('csv').setAttribute('aria-invalid', faults.length > 0);
  paintText();
}
function setText(text) {
  if (byId('csv').value === text) return;
  byId('csv').value = text;
  paintText();
}
// The marks lie below the text, which is transparent.
function paintText() {
  const text = byId('csv').value, spans = faults.map((fault) => placeOf(fault, text)).filter(Boolean).sort((a, b) => a[0] - b[0]);
  let html = '', at = 0;
  for (const [start, stop] of spans) {
    if (start < at) continue;
    html += escapeText(text.slice(at, start)) + `<mark>${escapeText(text.slice(start, stop)) || ' '}</mark>`;
    at = stop;
  }
  byId('marks').innerHTML = html + escapeText(text.slice(at)) + '\n';
  followText();
}
function followText() {
  byId('marks').scrollTop = byId('csv').scrollTop;
  byId('marks').scrollLeft = byId('csv').scrollLeft;
}
function listenToText() {
  byId('csv').addEventListener('input', () => {
    paintText();
    change({csv: byId('csv').value});
  });
  byId('csv').addEventListener('scroll', followText);
  byId('faults').addEventListener('click', (event) => {
    const button = event.target.closest('[data-fault]');
    const place = button && placeOf(faults[button.dataset.fault], byId('csv').value);
    if (!place) return;
    byId('csv').focus();
    byId('csv').setSelectionRange(...place);
  });
}
