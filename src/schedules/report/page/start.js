
// ---- the data that the page shows, at its load and whenever they change
function canvasOf(run, index) {
  const canvas = document.getElementById('run' + index);
  if (!canvas.base) {
    canvas.base = document.createElement('canvas');  // the picture without a marked microbatch
    listenTo(canvas);
    onScreen.add(canvas);
    observer.observe(canvas);
    widths.observe(canvas);
    document.getElementById('text' + index).addEventListener('toggle', fillTexts);
  }
  canvas.run = run;
  return canvas;
}
// Takes data as page_data.h describes them. The page has a canvas for each run.
function setData(given) {
  data = given;
  data.runs.forEach(readRun);
  canvases = data.runs.map(canvasOf);
  hasMemory = data.runs.some((run) => run.memory.length);
  scaleMemory();
  showRuns(canvases);
}
