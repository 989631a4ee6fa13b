
// ---- the module, in workers: `live` answers what the page shows, `background` what takes longer, `naming` which schedule it is
class Engine {
  constructor(module) {
    Object.assign(this, {module, number: 0, running: null});
    this.start();
  }
  start() {
    this.worker = new Worker(WORKER);
    this.worker.postMessage({module: this.module});
    this.worker.onmessage = ({data: {number, answer, failure}}) => {
      const {running} = this;
      if (!running || number !== running.number) return;
      this.running = null;
      if (failure === undefined) return running.done(JSON.parse(answer));
      this.restart();
      running.done({error: {line: `the schedule could not be computed (${failure}): change it, nothing is lost`, field: ''}});
    };
  }
  restart() {
    this.worker.terminate();
    this.start();
  }
  // Returns the answer, or null if another question or cancel() came before it.
  ask(question) {
    this.cancel();
    return new Promise((done) => {
      this.running = {number: ++this.number, done};
      this.worker.postMessage({number: this.number, question: JSON.stringify(question)});
    });
  }
  cancel() {
    if (!this.running) return;
    this.running.done(null);
    this.running = null;
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
