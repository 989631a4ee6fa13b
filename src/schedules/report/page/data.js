// ---- the data of the page (page_data.h), in columns: a schedule may have a million actions
let data = null;  // setData
const PAIR = 255, NONE = 254;

// The actions of a rank, in order of time. Row i has one part (op, stage, row), or two in a pair;
// `op2` is NONE where there is no second one.
class Lane {
  constructor(flat) {
    let count = 0;
    for (let i = 0; i < flat.length; ++count) i += flat[i] === PAIR ? 9 : 5;
    this.length = count;
    this.op = new Uint8Array(count);
    this.stage = new Uint16Array(count);
    this.row = new Int32Array(count);
    this.op2 = new Uint8Array(count).fill(NONE);
    this.stage2 = new Uint16Array(count);
    this.row2 = new Int32Array(count);
    this.start = new Float64Array(count);
    this.end = new Float64Array(count);
    for (let i = 0, k = 0; k < count; ++k) {
      const pair = flat[i] === PAIR;
      if (pair) ++i;
      [this.op[k], this.stage[k], this.row[k]] = [flat[i], flat[i + 1], flat[i + 2]];
      i += 3;
      if (pair) {
        [this.op2[k], this.stage2[k], this.row2[k]] = [flat[i], flat[i + 1], flat[i + 2]];
        i += 3;
      }
      this.start[k] = flat[i++];
      this.end[k] = flat[i++];
    }
  }
  parts(k) {
    const first = [this.op[k], this.stage[k], this.row[k]];
    return this.op2[k] === NONE ? [first] : [first, [this.op2[k], this.stage2[k], this.row2[k]]];
  }
  // First action that ends after the time.
  after(time) { return firstAbove(this.end, time); }
}
// The idle times of a rank: start, end, cause, and what the rank waits for: its rank, or -1, and part.
class Bubbles {
  constructor(flat) {
    const all = [];
    for (let i = 0; i < flat.length;) {
      const bubble = {start: flat[i], end: flat[i + 1], cause: flat[i + 2], rank: flat[i + 3]};
      i += 4;
      if (bubble.rank >= 0) bubble.part = flat.slice(i, i += 3);
      all.push(bubble);
    }
    this.all = all;
    this.end = Float64Array.from(all, (bubble) => bubble.end);
  }
  at(time) {
    const bubble = this.all[firstAbove(this.end, time)];
    return bubble && bubble.start <= time ? bubble : null;
  }
}
// By action of a rank: the input that was ready last: the rank and index of the action that computes
// it, or rank -1, and when it was ready.
class Inputs {
  constructor(flat, count) {
    this.rank = new Int16Array(count).fill(-1);
    this.index = new Int32Array(count);
    this.ready = new Float64Array(count);
    for (let i = 0, k = 0; i < flat.length; ++k) {
      this.rank[k] = flat[i++];
      if (this.rank[k] < 0) continue;
      this.index[k] = flat[i++];
      this.ready[k] = flat[i++];
    }
  }
}
// The index of the first element above the value, in ascending order.
function firstAbove(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

// Brings a run of the data into columns, unless it is.
function readRun(run) {
  if (run.critical) return;
  run.lanes = run.lanes.map((flat) => new Lane(flat));
  run.links = (run.links || []).map((flat) => new Lane(flat));
  run.bubbles = (run.bubbles || []).map((flat) => new Bubbles(flat));
  run.inputs = (run.inputs || []).map((flat, rank) => new Inputs(flat, run.lanes[rank].length));
  for (const kind of run.memory) kind.curves = kind.curves.map((curve) => Float64Array.from(curve));
  run.critical = run.lanes.map((lane) => new Uint8Array(lane.length));
  const path = run.path || [];
  for (let i = 0; i < path.length; i += 2) run.critical[path[i]][path[i + 1]] = 1;
}
const chainOf = (run, stage) => Math.floor(stage / run.chainLength);

// Calls visit(rank, index) for every action of a microbatch: a row of a chain.
function eachOf(run, mark, visit) {
  run.lanes.forEach((lane, rank) => {
    for (let k = 0; k < lane.length; ++k) {
      const first = lane.row[k] === mark.row && chainOf(run, lane.stage[k]) === mark.chain;
      const second = lane.op2[k] !== NONE && lane.row2[k] === mark.row &&
                     chainOf(run, lane.stage2[k]) === mark.chain;
      if (first || second) visit(rank, k);
    }
  });
}
// The action with this part, as {rank, index}, or null.
function findPart(run, [op, stage, row]) {
  for (let rank = 0; rank < run.lanes.length; ++rank) {
    const lane = run.lanes[rank];
    for (let k = 0; k < lane.length; ++k) {
      if (lane.row[k] === row && lane.stage[k] === stage && lane.op[k] === op) return {rank, index: k};
      if (lane.op2[k] === op && lane.stage2[k] === stage && lane.row2[k] === row) return {rank, index: k};
    }
  }
  return null;
}
// Curves are flat: time, amount, time, amount, ... The number of points until a time.
function pointsUntil(curve, time) {
  let low = 0, high = curve.length / 2;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (curve[2 * middle] > time) high = middle; else low = middle + 1;
  }
  return low;
}
function amountAt(curve, time) {
  const points = pointsUntil(curve, time);
  return points > 0 ? curve[2 * points - 1] : 0;
}
