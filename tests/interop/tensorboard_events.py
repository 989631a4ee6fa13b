"""TensorBoard reads what penstock.tensorboard writes of a run and of its resumption: tensorboard_events.py PROGRAM VENV_PYTHON.

Any Python can start it. It continues in VENV_PYTHON, which has TensorBoard (./test installs it). Without it the test is
skipped with exit code 77 and the reason.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGLISH = ROOT / "examples" / "english.yaml"
WRITER = ROOT / "python" / "penstock" / "tensorboard.py"
SMALL = ["dim=16", "heads=2", "sequence=32", "batch=1", "microbatches=4", "sample=10", "ranks=2", "warmup=5"]


def train(program, folder, *words):
    command = [program, "train", str(ENGLISH), *SMALL, "--data", "text", "--name", "a", "--json", *words]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def write_events(*words, without=()):
    """Runs the module by its path: tools-venv lacks the package, which it does not need."""
    hide = "".join(f"sys.modules[{name!r}] = None; " for name in without)
    code = f"import runpy, sys; {hide}sys.argv[1:] = {[str(word) for word in words]}; runpy.run_path({str(WRITER)!r}, run_name='__main__')"
    return subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False, timeout=120)


def scalars(run):
    """Returns {tag: {step: value}} as TensorBoard shows it. No step may appear twice."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # pylint: disable=import-outside-toplevel,import-error

    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    found = {}
    for tag in events.Tags()["scalars"]:
        points = [(event.step, event.value) for event in events.Scalars(tag)]
        assert len(dict(points)) == len(points), f"{tag}: steps appear twice: {points}"
        found[tag] = dict(points)
    return found


def check_equal_to_metrics(run, steps):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == steps, lines
    shown = scalars(run)

    def expect(tag, values):
        assert sorted(shown[tag]) == list(range(steps)), (tag, shown[tag])
        for step, value in enumerate(values):
            assert abs(shown[tag][step] - value) <= 1e-6 * abs(value), (tag, step, shown[tag][step], value)

    for tag in ("loss", "lr", "grad_norm", "bubble"):
        expect(tag, [line[tag] for line in lines])
    for rank in range(2):
        expect(f"busy/rank{rank}", [line["busy"][rank] for line in lines])
        expect(f"peak_activation_bytes/rank{rank}", [line["peak_activation_bytes"][rank] for line in lines])
        assert all(0 <= value <= 1 for value in shown[f"rank_bubble/rank{rank}"].values())
    assert all(value > 0 for value in shown["tokens_per_second"].values())


def check(program, folder):
    (folder / "text").write_text("".join(f"line {i * i} of {i}\n" for i in range(600)))
    run = folder / "runs" / "a"
    train(program, folder, "steps=20", "every=5", "keep=0")
    written = write_events(run)
    assert written.returncode == 0, written.stderr
    assert written.stdout == f"wrote 20 lines to {run}; show them with: tensorboard --logdir {run}\n", written.stdout
    check_equal_to_metrics(run, 20)

    # Steps 10 to 19 run again, with other values.
    train(program, folder, "steps=25", "every=5", "keep=0", "lr=0.01", "resume=runs/a/checkpoints/step-10")
    assert write_events(run).returncode == 0
    assert len(list(run.glob("events.out.tfevents.*"))) == 2
    check_equal_to_metrics(run, 25)

    # A last line that is being written, and another folder.
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 25')
    assert write_events(run, "-o", folder / "events").returncode == 0
    assert sorted(scalars(folder / "events")["loss"]) == list(range(25))

    for words, without, line in [
        ([folder], (), f"[Errno 2] No such file or directory: '{folder}/metrics.jsonl'"),
        ([run], ("tensorboard",), "event files need the package tensorboard: pip install tensorboard"),
    ]:
        refused = write_events(*words, without=without)
        assert (refused.returncode, refused.stderr) == (1, f"penstock.tensorboard: {line}\n"), refused.stderr


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: tensorboard_events.py PROGRAM VENV_PYTHON")
    program, python = sys.argv[1], pathlib.Path(sys.argv[2])
    if not (python.parent.parent / ".complete").exists():
        print(f"skipped: TensorBoard is not at {python}; ./test installs it")
        sys.exit(SKIPPED)
    if pathlib.Path(sys.executable).absolute() != python.absolute():
        os.execv(python, [str(python), "-B", *sys.argv])
    with tempfile.TemporaryDirectory(prefix="penstock-tensorboard-") as folder:
        check(str(pathlib.Path(program).resolve()), pathlib.Path(folder))


if __name__ == "__main__":
    main()
