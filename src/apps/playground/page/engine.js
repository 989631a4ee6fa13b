
// ---- the module, in workers: `live` answers what the page shows, `background` what takes longer, `naming` which schedule it is
const PATIENCE = 200;  // ms
class Engine {
  constructor(module) {
    Object.assign(this, {module, number: 0, running: null, waiting: []});
    this.start();
  }
  start() {
    this.worker = new Worker(WORKER);
    this.worker.postMessage({module: this.module});
    this.worker.onmessage = ({data: {number, answer, failure}}) => {
      const {running} = this;
      if (!running || number !== running.number) return;
      this.running = null;
      if (failure === undefined) this.next(); else this.restart();
      if (failure === undefined) return running.done(JSON.parse(answer));
      running.done({error: {line: `the schedule could not be computed (${failure}): change it, nothing is lost`, field: ''}});
    };
  }
  restart() {
    this.worker.terminate();
    this.start();
    this.running = null;
    this.next();
  }
  // Questions are answered one after the other. A question replaces the one before it with the same purpose, whose answer is
  // then null. One that runs is given a moment to end: a new worker costs time too.
  ask(question, purpose = question.ask) {
    this.drop(purpose);
    const {running} = this;
    if (running?.purpose === purpose) {
      running.done(null);
      const stop = () => { if (this.running === running) this.restart(); };
      if (performance.now() - running.since > PATIENCE) stop(); else setTimeout(stop, PATIENCE);
    }
    return new Promise((done) => {
      this.waiting.push({number: ++this.number, purpose, done, question: JSON.stringify(question)});
      this.next();
    });
  }
  next() {
    if (this.running || !this.waiting.length) return;
    const {number, question} = this.running = {...this.waiting.shift(), since: performance.now()};
    this.worker.postMessage({number, question});
  }
  // Answers the waiting question of a purpose with null.
  drop(purpose) {
    for (const each of this.waiting) if (each.purpose === purpose) each.done(null);
    this.waiting = this.waiting.filter((each) => each.purpose !== purpose);
  }
  cancel(purpose) {
    this.drop(purpose);
    if (this.running?.purpose !== purpose) return;
    this.running.done(null);
    this.restart();
  }
}
let live = null, background = null, naming = null;
async function startEngines() {
  const packed = Uint8Array.from(atob(document.getElementById('module').textContent.trim()), (each) => each.charCodeAt(0));
  const bytes = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const module = await WebAssembly.compile(await new Response(bytes).arrayBuffer());
  [live, background, naming] = [new Engine(module), new Engine(module), new Engine(module)];
}
const WORKER = URL.createObjectURL(new Blob([document.getElementById('worker').textContent], {type: 'text/javascript'}));
