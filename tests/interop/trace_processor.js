// Perfetto's trace processor as a filter: node trace_processor.js FOLDER < requests > responses.
//
// FOLDER has engine_bundle.js and the WebAssembly of Perfetto's user interface. Requests and responses are
// TraceProcessorRpcStream messages. The bundle runs in a browser's worker, so this file provides what it uses of one.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const folder = process.argv[2];
const read = url => fs.readFileSync(path.join(folder, path.basename(String(url))));

process.type = 'renderer';  // or else the bundle refuses to run outside of a browser
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function() {};
globalThis.location = {href: 'https://localhost/', protocol: 'https:', host: 'localhost'};
globalThis.XMLHttpRequest = class {
  open(method, url) { this.url = url; }
  send() {
    const bytes = read(this.url);
    this.status = 200;
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    if (this.onload) this.onload();
  }
};

const requests = new Uint8Array(fs.readFileSync(0));
const port = {postMessage: bytes => fs.writeSync(1, bytes)};

vm.runInThisContext(read('engine_bundle.js').toString('utf8'), {filename: 'engine_bundle.js'});
self.onmessage({data: port});
// The bundle is ready once its microtasks have run, which is before the next timer.
setTimeout(() => port.onmessage({data: requests}), 0);
