
// ---- makespan against memory of all schedules of the catalog, with these fields
let compared = [], comparedFor = '';
let comparing = null;  // {asked, withSearches}

// Those whose order does not depend on the costs are compared whenever a schedule is shown, searches on request.
async function compareAll(engine, withSearches) {
  const of = {...state, csv: null};
  // Lanes of a text have their own size.
  if (state.csv !== null) of.fields = {...of.fields, ranks: String(answer.exact.ranks), microbatches: String(answer.exact.microbatches)};
  const asked = JSON.stringify([of.fields, of.stageCosts]);
  if (comparing?.asked === asked && !withSearches) return;
  if (asked === comparedFor && !withSearches) return showCompared(compared);  // the ring has moved
  if (comparing?.withSearches) background.cancel('compare');
  const round = comparing = {asked, withSearches}, found = [];
  for (const {name, is_search: isSearch} of [...catalog.schedules].sort((a, b) => a.is_search - b.is_search)) {
    if (isSearch && !withSearches) continue;
    const result = await engine.ask(questionOf('figures', {...of, schedule: name}), 'compare');
    if (round !== comparing) return;
    found.push(result.error ? {name, error: result.error.line} : {...result, name});
    if (withSearches) showCompared(found);
  }
  [comparing, comparedFor] = [null, asked];
  showCompared(found);
}
function cancelCompare() {
  comparing = null;
  background.cancel('compare');
  showCompared(compared);
}
function showCompared(found) {
  compared = found;
  byId('compare-stop').hidden = !comparing?.withSearches;
  const good = compared.filter(({error}) => !error).sort((a, b) => a.makespan - b.makespan || a.peak_memory - b.peak_memory);
  byId('compared').innerHTML = frontSvg(good) + comparedTable(good);
}
function comparedTable(good) {
  const row = (each) => `<tr><th scope="row"><button type="button" data-choose="${each.name}">${each.name}</button></th>` +
      `<td class="right">${plain(each.makespan)}</td><td class="right">${(100 * each.bubble).toFixed(1)}%</td>` +
      `<td class="right">${plain(each.peak_memory)}${each.above_limit ? ' (above the limit)' : ''}</td></tr>`;
  const refused = compared.filter(({error}) => error);
  return `<div class="scroll" tabindex="0" role="group" aria-label="all schedules"><table><caption class="unseen">all schedules</caption>` +
         `<thead><tr><th scope="col">schedule</th><th scope="col" class="right">makespan</th><th scope="col" class="right">bubble</th>` +
         `<th scope="col" class="right">peak memory</th></tr></thead><tbody>${good.map(row).join('')}</tbody></table></div>` +
         (refused.length ? `<details><summary>${refused.length} do not fit these fields</summary><ul>` +
          refused.map(({name, error}) => `<li><b>${name}</b>: ${escapeText(error)}</li>`).join('') + '</ul></details>' : '');
}
// One dot per schedule, and a ring for the schedule of the page.
function frontSvg(good) {
  if (!good.length) return '';
  const own = answer ? [{name: 'this', makespan: answer.exact.makespan, peak_memory: answer.exact.peak_memory}] : [];
  const all = [...good, ...own], W = 640, H = 260, left = 64, bottom = 40;
  const xs = all.map((each) => each.peak_memory), ys = all.map((each) => each.makespan);
  const range = (values) => [Math.min(...values), Math.max(...values)];
  const scale = ([low, high], from, to) => (value) => from + (high > low ? (value - low) / (high - low) : 0.5) * (to - from);
  const x = scale(range(xs), left + 16, W - 90), height = scale(range(ys).map(Math.log), H - bottom - 12, 18);
  const y = (makespan) => height(Math.log(makespan));
  const dots = good.map((each) => `<g data-choose="${each.name}"><circle class="dot" cx="${x(each.peak_memory)}" cy="${y(each.makespan)}" r="5"/>` +
      `<title>${each.name}: makespan ${plain(each.makespan)}, peak memory ${plain(each.peak_memory)}</title></g>`).join('');
  const taken = [];
  const labels = good.map((each) => {
    const at = [x(each.peak_memory) + 9, y(each.makespan) + 4];
    if (taken.some(([a, b]) => Math.abs(a - at[0]) < 80 && Math.abs(b - at[1]) < 12)) return '';
    taken.push(at);
    return `<text x="${at[0]}" y="${at[1]}">${each.name}</text>`;
  }).join('');
  const ring = own.map((each) => `<circle class="ring" cx="${x(each.peak_memory)}" cy="${y(each.makespan)}" r="9"/>`).join('');
  const [low, high] = range(ys), [least, most] = range(xs);
  return `<svg class="all" viewBox="0 0 ${W} ${H}" role="img" aria-label="makespan against peak memory of ${good.length} schedules, as in the table below">` +
         `<line class="axis" x1="${left}" y1="${H - bottom}" x2="${W - 10}" y2="${H - bottom}"/><line class="axis" x1="${left}" y1="8" x2="${left}" y2="${H - bottom}"/>` +
         `<text x="${left - 6}" y="${y(low) + 4}" text-anchor="end">${plain(low)}</text>` + (high > low ? `<text x="${left - 6}" y="${y(high) + 4}" text-anchor="end">${plain(high)}</text>` : '') +
         `<text x="${x(least)}" y="${H - bottom + 16}" text-anchor="middle">${plain(least)}</text>` + (most > least ? `<text x="${x(most)}" y="${H - bottom + 16}" text-anchor="middle">${plain(most)}</text>` : '') +
         `<text x="${W / 2}" y="${H - 6}" text-anchor="middle">peak memory of the worst rank</text><text x="4" y="12">makespan</text>${ring}${dots}${labels}</svg>`;
}
function listenToCompare() {
  byId('compare-all').addEventListener('click', () => compareAll(background, true));
  byId('compare-stop').addEventListener('click', cancelCompare);
  byId('compared').addEventListener('click', (event) => {
    const chosen = event.target.closest('[data-choose]');
    if (chosen) change({schedule: chosen.dataset.choose, csv: null});
  });
}

// ---- a better order of the same actions
async function improve() {
  byId('improve').disabled = true;
  const of = state, result = await background.ask(questionOf('improve'));
  byId('improve').disabled = false;
  if (!result || of !== state) return;
  if (result.error || result.faults) return showMessage((result.error || result.faults[0]).line);
  if (result.none) return showMessage('The local search finds no shorter order within this memory.');
  const before = answer.exact.makespan;
  change({csv: result.csv}, result);
  showMessage(`The makespan is ${plain(before - answer.exact.makespan)} shorter.`);
}
