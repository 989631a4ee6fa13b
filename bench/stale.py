"""Held-out loss of schedules without a flush and of 1f1b, for equal steps and for equal time.

The model and the text come from examples/english.yaml. The runs of a table differ only in their schedule: pipedream
updates after every microbatch, the others once per step.
"""
import argparse
import json
import os
import subprocess
import tempfile

SCHEDULES = ["1f1b", "pipedream-2bw", "pipedream"]


def train(given, folder, schedule, *words):
    config = os.path.join(os.path.dirname(__file__), "..", "examples", "english.yaml")
    command = [given.program, "train", config, f"schedule={schedule}", f"ranks={given.ranks}", f"folder={folder}",
               f"name={schedule}", "sample=0", "optimizer.warmup=30", *words, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def table(title, given, *words):
    print(title)
    print(f"{'schedule':14} {'steps':>6} {'tokens/s':>9} {'held-out':>9} {'bigram':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for schedule in SCHEDULES:
            figures = train(given, folder, schedule, *words)
            print(f"{schedule:14} {figures['steps']:6} {figures['tokens_per_second']:9.0f}"
                  f" {figures['held_out_loss']:9.4f} {figures['baseline_loss']:7.4f}", flush=True)
    print()


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--program", required=True)
    options.add_argument("--ranks", type=int, default=4)
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--seconds", type=float, default=40)
    options.add_argument("--only", choices=["tokens", "time"])
    given = options.parse_args()
    if given.only != "time":
        table(f"{given.ranks} ranks, {given.steps} steps each (nats per byte)", given, f"steps={given.steps}")
    if given.only != "tokens":
        table(f"{given.ranks} ranks, {given.seconds:g} seconds each", given, f"seconds={given.seconds}", "steps=100000")


main()
