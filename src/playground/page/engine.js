
// ---- the module, in workers: `live` answers what the page shows, `background` what takes longer, `naming` which schedule it is
const PATIENCE = 200;  // ms
class Engine {
  constructor(module) {
    Object.assign(this, {module, number: 0, running: null, waiting: null});
    this.start();
  }
  start() {
    this.worker = new Worker(WORKER);
    this.worker.postMessage({module: this.module});
    this.worker.onmessage = ({data: {number, answer, failure}}) => {
      const {running} = this;
      if (!running || number !== running.number) return;
      this.running = null;
      if (failure !== undefined) this.restart();
      this.next();
      if (failure === undefined) return running.done(JSON.parse(answer));
      running.done({error: {line: `the schedule could not be computed (${failure}): change it, nothing is lost`, field: ''}});
    };
  }
  restart() {
    this.running = null;
    this.worker.terminate();
    this.start();
  }
  // Returns the answer, or null if another question or cancel() came before it. A question waits for the one before it only
  // for a moment: a new worker costs time too.
  ask(question) {
    if (this.running && performance.now() - this.running.since > PATIENCE) this.cancel();
    if (this.running) this.running.done(null);
    if (this.waiting) this.waiting.done(null);
    return new Promise((done) => {
      this.waiting = {number: ++this.number, done, question: JSON.stringify(question)};
      if (!this.running) return this.next();
      setTimeout(() => { if (this.waiting) this.restart(); this.next(); }, PATIENCE);
    });
  }
  next() {
    if (!this.waiting || this.running) return;
    const {number, question} = this.waiting;
    [this.running, this.waiting] = [{...this.waiting, since: performance.now()}, null];
    this.worker.postMessage({number, question});
  }
  cancel() {
    if (this.waiting) this.waiting.done(null);
    if (this.running) this.running.done(null);
    if (this.running) this.restart();
    this.running = this.waiting = null;
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
