"""A Llama of 1.1 billion parameters in bf16 on one GPU: the engine against PyTorch, eager and compiled.

All contenders have weights and AdamW state in fp32, but "eager bf16 weights", which has both in bf16. They run in turn,
each in a process of its own, and the medians of their steps are compared.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

SHAPE = {
    "dim": 2048,
    "hidden": 8192,
    "layers": 16,
    "heads": 32,
    "kv_heads": 8,
    "vocabulary": 32000,
    "sequence": 1024,
    "batch": 4,
    "microbatches": 8,
}
RUNS = {
    "penstock": ["pipeline.chunks=1"],
    "penstock without fused kernels": ["pipeline.chunks=1", "fuse=false"],
    "penstock with graphs": ["pipeline.chunks=1", "device_graphs=true"],
    "penstock, zbv on 2 ranks": ["pipeline.schedule=zbv", "pipeline.ranks=2", "pipeline.chunks=2"],
    "penstock, 1f1b on 4 ranks": ["pipeline.ranks=4", "pipeline.chunks=1"],
    "penstock, 1f1b on 4 parts": ["pipeline.ranks=4", "pipeline.chunks=1", "device_parts=true"],
}
PYTHON_KINDS = ["Pipeline", "Pipeline precision", "compiled", "eager", "eager bf16 weights"]
BASELINE = "eager"


def flops_per_token() -> float:
    """Counts forward and backward: matmuls with weights, and half of the attention, which is causal."""
    head_dim = SHAPE["dim"] // SHAPE["heads"]
    attention = SHAPE["dim"] * (2 * SHAPE["dim"] + 2 * SHAPE["kv_heads"] * head_dim)
    layer = attention + 3 * SHAPE["dim"] * SHAPE["hidden"]
    weights = SHAPE["layers"] * layer + SHAPE["dim"] * SHAPE["vocabulary"]
    return 6 * weights + 6 * SHAPE["layers"] * SHAPE["sequence"] * SHAPE["dim"]


def run(command: list[str]) -> str:
    """What the command prints to standard output."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]}: {(done.stderr.splitlines() or ['no message'])[-1]}")
    return done.stdout


def engine_step(program: str, device: str, settings: list[str], text: Path, steps: int) -> float:
    """The median time of a step, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        config.write_text(f"data: {{path: {text}}}\n", encoding="utf-8")
        model = [f"model.{key}={value}" for key, value in SHAPE.items() if key not in ("batch", "microbatches")]
        command = [
            *[program, "train", str(config), f"device={device}", f"folder={folder}/runs", "precision=bf16", "exact=false"],
            *[f"steps={steps}", "sample=0", f"batch={SHAPE['batch']}", f"pipeline.microbatches={SHAPE['microbatches']}"],
            *["pipeline.ranks=1", *model, *settings, "--json"],
        ]
        return json.loads(run(command))["step_time"]


def peer_step(python: str, device: str, kind: str, steps: int) -> dict:
    shape = json.dumps({**SHAPE, "device": device})
    command = [python, str(Path(__file__).with_name("device_peer.py")), "--shape", shape, "--kind", kind]
    return json.loads(run([*command, "--steps", str(steps)]).splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--peer-python", required=True, help="a Python with penstock, transformers and a torch for the device")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {}
    about: dict = {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text("".join(f"{number} is followed by {number + 1}.\n" for number in range(20000)), encoding="utf-8")
        for _ in range(arguments.rounds):
            for name, settings in RUNS.items():
                step = engine_step(arguments.program, arguments.device, settings, text, arguments.steps)
                seconds.setdefault(name, []).append(step)
                print(f"{name}: {step:.3f} s", flush=True)
            for kind in PYTHON_KINDS:
                about = peer_step(arguments.peer_python, arguments.device, kind, arguments.steps)
                seconds.setdefault(kind, []).append(about["seconds"])
                print(f"{kind}: {about['seconds']:.3f} s", flush=True)
    tokens = SHAPE["batch"] * SHAPE["sequence"] * SHAPE["microbatches"]
    print(f"{about['device']}, torch {about['torch']}, bf16 matmuls at {about['matmul'] / 1e12:.0f} TFLOP/s")
    print("| | step, s | tokens/s | against eager | share of the matmul rate |\n| --- | ---: | ---: | ---: | ---: |")
    baseline = statistics.median(seconds[BASELINE])
    for name, times in seconds.items():
        step = statistics.median(times)
        share = tokens / step * flops_per_token() / about["matmul"]
        print(f"| {name} | {step:.3f} | {tokens / step:,.0f} | {baseline / step:.2f}x | {share:.0%} |")


if __name__ == "__main__":
    main()
