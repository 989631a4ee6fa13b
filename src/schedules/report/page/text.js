
// ---- figures as text
const escapeText = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');
function plain(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(3);
  return String(+value.toPrecision(size >= 1000 ? 7 : 5));
}
function timeText(value) {
  if (data.timeUnit !== 's') return plain(value);
  if (value === 0) return '0 s';
  const [scale, name] = timeUnit(Math.abs(value));
  return `${+(value / scale).toPrecision(4)} ${name}`;
}
// The scale and name of the unit of a time. All ticks of an axis have the unit of the largest.
function timeUnit(value) {
  if (data.timeUnit !== 's') return [1, ''];
  return [[1, 's'], [1e-3, 'ms'], [1e-6, 'us']].find(([scale]) => value >= 0.99995 * scale) || [1e-9, 'ns'];
}
// More digits than `plain` has: neighboring ticks of a small part of the time differ in the last ones.
function tickText(value) {
  const rounded = +value.toPrecision(12), size = Math.abs(rounded);
  return size && (size >= 1e6 || size < 1e-4) ? plain(rounded) : String(rounded);
}
function bytesText(value) {
  for (const [scale, name] of [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) {
    if (Math.abs(value) >= 0.9995 * scale) return +(value / scale).toPrecision(4) + ' ' + name;
  }
  return Math.round(value) + ' B';
}
const memoryText = (value) => data.memoryUnit === 'B' ? bytesText(value) : plain(value);
function microbatchText(run, row) {
  return run.slices > 1 ? Math.floor(row / run.slices) + '.' + (row % run.slices) : String(row);
}
function partName(run, part) {
  const microbatch = part[2] >= 0 ? ', microbatch ' + microbatchText(run, part[2]) : '';
  return `<b>${data.names[part[0]]}</b> stage ${part[1]}${microbatch}`;
}
