"""bench/playground.py: times from a change on the playground's page until it is drawn (`drawn`) and until the browser's next frame
shows it (`frame`, at 60 frames/s), in headless Chromium, in ms.

`trial` is one place of a dragged action, of the answer that has all places.
"""
import json
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
import browser  # noqa: E402

CHANGE = """(async (fields) => {
  const before = penstock.answer(), begun = performance.now();
  for (const [name, value] of Object.entries(fields)) {
    const input = document.querySelector(`[data-field="${name}"]`);
    input.value = value;
    input.dispatchEvent(new Event('input'));
  }
  // Timers wait for 4 ms; messages do not.
  const {port1, port2} = new MessageChannel();
  while (penstock.answer() === before) await new Promise((done) => { port1.onmessage = done; port2.postMessage(0); });
  const drawn = performance.now() - begun;
  await new Promise((done) => requestAnimationFrame(done));
  return [drawn, performance.now() - begun];
})"""
TEXT = """(async () => {
  const pane = document.getElementById('csv'), begun = performance.now();
  pane.value = pane.value.replace('F', 'X');
  pane.dispatchEvent(new Event('input'));
  while (!document.querySelector('#marks mark')) await new Promise((done) => setTimeout(done, 0));
  const took = performance.now() - begun;
  pane.value = pane.value.replace('X', 'F');
  pane.dispatchEvent(new Event('input'));
  await new Promise((done) => setTimeout(done, 300));
  return took;
})()"""


class Page:
    def __init__(self):
        self.browser = browser.Browser()
        begun = time.monotonic()
        self.browser.open(f"file://{ROOT / 'build' / 'playground.html'}")
        while self.browser.evaluate("document.body.dataset.ready") != "true":
            pass
        self.first = 1000 * (time.monotonic() - begun)

    def change(self, **fields):
        return self.browser.evaluate(f"{CHANGE}({json.dumps(fields)})")

    def choose(self, schedule, ranks, microbatches):
        self.browser.evaluate(f"""(() => {{ const box = document.getElementById('schedule'); box.value = '{schedule}';
                                  box.dispatchEvent(new Event('change')); }})()""")
        time.sleep(1)
        self.change(ranks=str(ranks), microbatches=str(microbatches))
        time.sleep(0.5)

    def trial(self, schedule, ranks, microbatches):
        question = {"ask": "places", "schedule": schedule, "rank": ranks // 2, "from": microbatches,
                    "fields": {"ranks": str(ranks), "microbatches": str(microbatches)}}
        took, places = self.browser.evaluate(f"""(async () => {{ const begun = performance.now();
            const answer = await penstock.ask({json.dumps(question)});
            return [performance.now() - begun, answer.places.length]; }})()""")
        return took / places


def main():
    page = Page()
    print(f"first picture: {page.first:.0f}")
    print(f"{'schedule':12} {'ranks':>5} {'microbatches':>12} {'drawn':>6} {'frame':>6} {'fault in text':>13} {'trial':>6}")
    for schedule in ("1f1b", "zb-h1", "interleaved", "zbv", "v-auto"):
        for ranks, microbatches in ((8, 32), (16, 128)):
            page.choose(schedule, ranks, microbatches)
            drawn, frame = map(statistics.median, zip(*[page.change(comm=f"0.{step + 10}") for step in range(25)][5:]))
            texts = [page.browser.evaluate(TEXT) for _ in range(5)]
            time.sleep(0.5)  # the page asks which schedule it is
            trials = [page.trial(schedule, ranks, microbatches) for _ in range(5)] if schedule == "1f1b" else []
            trial = f"{statistics.median(trials):6.2f}" if trials else ""
            print(f"{schedule:12} {ranks:5} {microbatches:12} {drawn:6.1f} {frame:6.1f} {statistics.median(texts):13.1f} {trial}", flush=True)
    page.browser.close()


if __name__ == "__main__":
    main()
