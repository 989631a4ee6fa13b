
// ---- what is taken along: a link, CSV, YAML, and files that are dropped on the page
async function packed(text) {
  const bytes = new Blob([text]).stream().pipeThrough(new CompressionStream('deflate-raw'));
  const all = new Uint8Array(await new Response(bytes).arrayBuffer());
  let binary = '';
  for (const byte of all) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}
async function unpacked(text) {
  const binary = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
  const bytes = Uint8Array.from(binary, (each) => each.charCodeAt(0));
  // A short text can unpack to any length.
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw')).getReader();
  let all = '', read;
  const decoder = new TextDecoder();
  while (!(read = await reader.read()).done) {
    all += decoder.decode(read.value, {stream: true});
    if (all.length > 4e6) throw new Error('the link is too long');
  }
  return all + decoder.decode();
}
linked.text = async () => ['s=' + await packed(JSON.stringify(state)), linkText()].filter(Boolean).join('&');

// Returns a state if the value is one. A link or a file may hold anything.
function asState(value) {
  const isText = (each) => typeof each === 'string' && each.length < 4e6;
  if (!value || typeof value !== 'object' || !isText(value.schedule)) return null;
  const fields = {};
  for (const [name, text] of Object.entries(value.fields || {})) {
    if (!catalog.fields.some((field) => field.name === name)) return null;
    if (!isText(text) && !(Array.isArray(text) && text.every(isText))) return null;
    fields[name] = text;
  }
  const stages = value.stageCosts ?? null;
  const isStage = (stage) => stage && STAGE_COSTS.every((name) => typeof stage[name] === 'number');
  if (stages !== null && !(Array.isArray(stages) && stages.length && stages.every(isStage))) return null;
  return {schedule: value.schedule, fields, stageCosts: stages, inBytes: Boolean(value.inBytes),
          topology: Array.isArray(value.topology) ? value.topology : null, csv: isText(value.csv) ? value.csv : null};
}
async function readShared() {
  const words = new URLSearchParams(location.hash.slice(1));
  if (words.has('s')) {
    try {
      const read = asState(JSON.parse(await unpacked(words.get('s'))));
      if (read) state = read; else showMessage('The link holds no schedule: this is the usual one.');
    } catch {
      showMessage('The link is not complete: this is the usual schedule.');
    }
  }
}
function save(name, text, type) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
// A configuration of `penstock simulate` for what the page shows.
function yamlText() {
  const scalar = (text) => /^[\w.,+-]+$/.test(text) ? text : JSON.stringify(text);
  const lines = [state.csv === null ? `schedule: ${state.schedule}` : 'schedule: edited.csv'];
  for (const [name, value] of Object.entries(state.fields)) {
    if (!value.length || (state.csv !== null && SHAPES.includes(name)) || (state.stageCosts && name === 'cost')) continue;
    lines.push(`${name}: ${Array.isArray(value) ? `[${value.map((each) => JSON.stringify(each)).join(', ')}]` : name === 'cost' ? `[${value}]` : scalar(value)}`);
  }
  if (state.stageCosts) {
    lines.push('stage_costs:');
    for (const stage of state.stageCosts) lines.push(`  - {${STAGE_COSTS.map((name) => `${name}: ${stage[name]}`).join(', ')}}`);
  }
  return lines.join('\n') + '\n';
}
// Reads what yamlText writes, and other files of such lines.
function stateOfYaml(text) {
  const read = {schedule: state.schedule, fields: {}, stageCosts: null, csv: null};
  const value = (word) => word.startsWith('"') ? JSON.parse(word) : word.replace(/^'(.*)'$/, '$1');
  const list = (words) => words.slice(1, -1).match(/"(?:[^"\\]|\\.)*"|[^,\s][^,]*/g)?.map((word) => value(word.trim())) || [];
  text.split('\n').forEach((raw, i) => {
    const line = raw.replace(/\s+#.*$|^#.*$/, '').trimEnd();
    const refuse = (why) => { throw new Error(`line ${i + 1}: ${why}`); };
    if (!line.trim()) return;
    const entry = /^\s+- \{(.*)\}$/.exec(line), pair = /^(\w+):\s*(.*)$/.exec(line);
    if (entry && read.stageCosts) {
      const stage = {forward: 1, backward_input: 1, backward_weight: 1, activation: 1};
      for (const part of entry[1].split(',')) {
        const [name, number] = part.split(':').map((word) => word.trim());
        if (!(name in stage) || !Number.isFinite(Number(number))) refuse(`'${part.trim()}' is no cost that the playground has`);
        stage[name] = Number(number);
      }
      return read.stageCosts.push(stage);
    }
    if (!pair) refuse(`'${line.trim()}' is not KEY: VALUE; other forms are read by 'penstock simulate'`);
    const [, name, words] = pair;
    if (name === 'stage_costs' && !words) read.stageCosts = [];
    else if (name === 'schedule' && !words.startsWith('[')) read.schedule = value(words);
    else if (!catalog.fields.some((field) => field.name === name)) refuse(`the playground has no field '${name}'`);
    else if (words.startsWith('[')) read.fields[name] = LISTS.includes(name) ? list(words) : list(words).join(',');
    else read.fields[name] = LISTS.includes(name) ? [value(words)] : value(words);
  });
  return read;
}
async function takeFile(file) {
  if (!file) return;
  if (file.size > 4e6) return showMessage(`${file.name}: the playground reads files of up to 4 MB`);
  const text = await file.text();
  if (!/\.ya?ml$/.test(file.name)) return change({csv: text});
  try {
    change(stateOfYaml(text));
  } catch (error) {
    showMessage(`${file.name}: ${error.message}`);
  }
}
async function copy(button, text) {
  const name = button.dataset.name ||= button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'No access to the clipboard';
  }
  setTimeout(() => { button.textContent = name; }, 1500);
}
function listenToShare() {
  byId('copy-link').addEventListener('click', async (event) => {
    const button = event.currentTarget, words = await linked.text();
    history.replaceState(null, '', '#' + words);
    await copy(button, location.href);
  });
  byId('copy-command').addEventListener('click', (event) => copy(event.currentTarget, answer.command));
  byId('save-csv').addEventListener('click', () => save(state.csv === null ? `${state.schedule}.csv` : 'edited.csv', state.csv ?? answer.csv, 'text/csv'));
  byId('save-yaml').addEventListener('click', () => save('scenario.yaml', yamlText(), 'text/yaml'));
  byId('file').addEventListener('change', () => takeFile(byId('file').files[0]));
  addEventListener('dragover', (event) => event.preventDefault());
  addEventListener('drop', (event) => {
    event.preventDefault();
    takeFile(event.dataTransfer.files[0]);
  });
}
