"""CPU time that a page of `penstock report` takes per frame, in headless Chromium: the whole browser, drawing included."""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/apps/cli"))
import browser  # noqa: E402

TICK = os.sysconf("SC_CLK_TCK")
FRAMES = 40


def family(pid):
    """The process and all that it started."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid] + [one for child in children for one in family(int(child))]


def cpu_seconds(pid):
    total = 0
    for one in family(pid):
        fields = pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def per_frame(page, act):
    """Milliseconds of CPU time of one of FRAMES frames, each drawn before the next is asked for."""
    start = cpu_seconds(page.pid)
    for frame in range(FRAMES):
        act(frame)
        page.settle()
    return (cpu_seconds(page.pid) - start) / FRAMES * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    if browser.MISSING:
        sys.exit(browser.MISSING)
    page = browser.Browser()
    print(f"{'actions':>9} {'MB':>6} {'load':>7} {'idle':>7} {'hover':>7} {'zoom':>7} {'move':>7}   ms of CPU time")
    with tempfile.TemporaryDirectory() as folder:
        for microbatches in (128, 1024, 10240):
            path = pathlib.Path(folder) / "a.html"
            subprocess.run([options.program, "report", "zbv", "-p", "16", "-m", str(microbatches), "--comm", "0.1",
                            "-o", path], check=True, stdout=subprocess.DEVNULL)
            start = cpu_seconds(page.pid)
            page.open(f"file://{path}")
            load = (cpu_seconds(page.pid) - start) * 1000
            left, top = page.center("#run0")
            page.click(left, top)
            times = [per_frame(page, lambda frame: None),
                     per_frame(page, lambda frame: page.hover(left - 400 + 20 * frame, top - 60 + 7 * (frame % 20))),
                     per_frame(page, lambda frame: page.key("+" if frame % 20 < 10 else "-")),
                     per_frame(page, lambda frame: page.key("ArrowLeft" if frame % 2 else "ArrowRight"))]
            print(f"{16 * microbatches * 6:9} {path.stat().st_size / 1e6:6.1f} {load:7.0f} " +
                  " ".join(f"{time:7.1f}" for time in times), flush=True)
    page.close()


if __name__ == "__main__":
    main()
