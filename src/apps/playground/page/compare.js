
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
  const pairs = good.some((each) => each.one_after_other);
  const row = (each) => `<tr><th scope="row"><button type="button" data-choose="${each.name}">${each.name}</button></th>` +
      `<td class="right">${timeText(each.makespan)}${each.one_after_other ? '*' : ''}</td>` +
      (pairs ? `<td class="right">${each.one_after_other ? timeText(each.one_after_other) : ''}</td>` : '') + `<td class="right">${(100 * each.bubble).toFixed(1)}%</td>` +
      `<td class="right">${memoryText(each.peak_memory)}${each.above_limit ? ' (above the limit)' : ''}</td></tr>`;
  const refused = compared.filter(({error}) => error);
  return `<div class="scroll" tabindex="0" role="group" aria-label="all schedules"><table><caption class="unseen">all schedules</caption>` +
         `<thead><tr><th scope="col">schedule</th><th scope="col" class="right">makespan</th>` +
         (pairs ? '<th scope="col" class="right">if pairs take F + B</th>' : '') + `<th scope="col" class="right">bubble</th>` +
         `<th scope="col" class="right">peak memory</th></tr></thead><tbody>${good.map(row).join('')}</tbody></table></div>` +
         (pairs ? '<p class="hint">* Overlapped pairs of a forward and a backward take the longer of the two times (--overlap max). Devices are between the two columns.</p>' : '') +
         (refused.length ? `<details><summary>${refused.length} do not fit these fields</summary><ul>` +
          refused.map(({name, error}) => `<li><b>${name}</b>: ${escapeText(error)}</li>`).join('') + '</ul></details>' : '');
}
// One dot per schedule, and a ring for the schedule of the page. The range is that of schedules which take at most FAR
// times as long as the shortest: slower ones are arrows at its upper edge.
const FAR = 1.6, LETTER = 6.4, LINE = 13;
function rangeOf(values, least) {
  const low = Math.min(...values), high = Math.max(...values);
  if (high - low >= least * high) return [low, high];
  return low === high ? [0, high || 1] : [high - least * high, high];  // equal values: from 0
}
function frontSvg(good) {
  if (!good.length) return '';
  const own = answer ? [{name: 'this', makespan: answer.exact.makespan, peak_memory: answer.exact.peak_memory}] : [];
  const W = Math.max(300, Math.min(760, byId('compared').clientWidth)), H = 280, left = 58, right = W - 24, top = 30, bottom = H - 44;
  const shortest = Math.min(...good.map((each) => each.makespan));
  const isFar = (each) => each.makespan > FAR * shortest;
  const near = [...good, ...own].filter((each) => !isFar(each));
  const xs = rangeOf([...good, ...own].map((each) => each.peak_memory), 0.1), ys = rangeOf(near.map((each) => each.makespan), 0.1);
  const scale = ([low, high], from, to) => (value) => from + (value - low) / (high - low) * (to - from);
  const x = scale(xs, left + 14, right - 14), height = scale(ys, bottom - 14, top + 24);
  const y = (each) => isFar(each) ? top + 4 : height(each.makespan);
  const text = (each) => `${each.name}: makespan ${timeText(each.makespan)}` +
      (each.one_after_other ? `, ${timeText(each.one_after_other)} if pairs take F + B` : '') + `, peak memory ${memoryText(each.peak_memory)}`;
  const shape = (each) => {
    const [at, up] = [x(each.peak_memory), y(each)], kind = each.one_after_other ? 'dot pairs' : 'dot';
    return isFar(each) ? `<path class="${kind}" d="M${at - 5} ${up + 6}h10l-5 -9z"/>` : `<circle class="${kind}" cx="${at}" cy="${up}" r="5"/>`;
  };
  const dots = good.map((each) => `<g data-choose="${each.name}">${shape(each)}<title>${text(each)}</title></g>`).join('');
  // A name is at the first place around its dot that is free: no other name or dot is there.
  const taken = good.map((each) => ({left: x(each.peak_memory) - 6, right: x(each.peak_memory) + 6, top: y(each) - 6, bottom: y(each) + 6}));
  const labels = good.map((each) => {
    const [at, up] = [x(each.peak_memory), y(each)], name = isFar(each) ? `${each.name} ${timeText(each.makespan)}` : each.name, w = LETTER * name.length;
    const places = [[at + 11, up + 4], [at - 11 - w, up + 4], [at - w / 2, up - 10], [at - w / 2, up + 19], [at + 7, up - 7], [at + 7, up + 15],
                    [at - 7 - w, up - 7], [at - 7 - w, up + 15]];
    for (const [from, base] of places) {
      const box = {left: from, right: from + w, top: base - LINE + 3, bottom: base + 3};
      const fits = box.left >= left + 2 && box.right <= W - 2 && box.top >= 14 && box.bottom <= bottom - 1;
      if (!fits || taken.some((other) => other.left < box.right && other.right > box.left && other.top < box.bottom && other.bottom > box.top)) continue;
      taken.push(box);
      return `<text x="${from}" y="${base}">${name}</text>`;
    }
    return '';
  }).join('');
  const ring = own.map((each) => `<circle class="ring" cx="${x(each.peak_memory)}" cy="${y(each)}" r="9"/>`).join('');
  const ticks = ([low, high], count) => {
    const step = tickStep(high - low, count), all = [];
    for (let tick = Math.ceil(low / step); tick * step <= high * (1 + 1e-9); ++tick) all.push(tick * step);
    return all;
  };
  const unit = timeUnit(ys[1]);
  const yTicks = ticks(ys, 4).map((tick) => `<text x="${left - 6}" y="${height(tick) + 4}" text-anchor="end">${tickText(tick / unit[0])}</text>`).join('');
  const xTicks = ticks(xs, W / 80).map((tick) => `<text x="${x(tick)}" y="${bottom + 16}" text-anchor="middle">${memoryText(tick)}</text>`).join('');
  return `<svg class="all" viewBox="0 0 ${W} ${H}" role="img" aria-label="makespan against peak memory of ${good.length} schedules, as in the table below">` +
         `<line class="axis" x1="${left}" y1="${bottom}" x2="${right}" y2="${bottom}"/><line class="axis" x1="${left}" y1="${top}" x2="${left}" y2="${bottom}"/>` +
         `${yTicks}${xTicks}<text x="${(left + right) / 2}" y="${H - 8}" text-anchor="middle">peak memory of the worst rank</text>` +
         `<text x="4" y="12">makespan${unit[1] && ', ' + unit[1]}</text>${ring}${dots}${labels}</svg>`;
}
function listenToCompare() {
  let width = 0;
  new ResizeObserver(() => {
    if (byId('compared').clientWidth === width) return;
    width = byId('compared').clientWidth;
    if (compared.length) showCompared(compared);
  }).observe(byId('compared'));
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
