"""try_wheel.py [--engine]: tries an installed wheel, as a newcomer would. Fails if something does not work."""
import pathlib
import subprocess
import sys

import penstock


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def main():
    schedule = penstock.schedule("zbv", ranks=4, microbatches=8)
    schedule.check()
    assert schedule.simulate().makespan > 0
    assert penstock.__version__ in output_of("penstock", "--version")
    assert "zbv" in output_of("penstock", "simulate", "zbv", "-p", "4", "-m", "8")
    output_of("penstock", "plan", "--help")
    output_of("penstock", "report", "zbv", "-p", "4", "-m", "8", "-o", "report.html")
    output_of("penstock", "report", "zbv", "-p", "4", "-m", "8", "--playground", "-o", "playground.html")
    share = pathlib.Path(sys.prefix, "share")
    for file in ("man/man1/penstock.1", "man/man1/penstock-simulate.1", "bash-completion/completions/penstock", "zsh/site-functions/_penstock",
                 "fish/vendor_completions.d/penstock.fish"):
        assert (share / file).stat().st_size > 0, file
    if "--engine" in sys.argv:
        try_engine()


def try_engine():
    import penstock.torch as pt
    import torch

    stages = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(4)]
    pipe = pt.Pipeline(stages, "zbv", ranks=2, microbatches=4, loss=torch.nn.functional.mse_loss)
    first = [pipe.step(torch.ones(8, 8), torch.zeros(8, 8)) for _ in range(5)]
    assert first[-1] < first[0], first
    pathlib.Path("text.txt").write_text("hello world " * 500)
    pathlib.Path("train.yaml").write_text("steps: 2\nsample: 0\n")
    settings = "data.path=text.txt model.dim=32 model.layers=4 model.heads=2 model.sequence=16 ranks=2 microbatches=4"
    output_of("penstock", "train", "train.yaml", *settings.split())


main()
