"""1f1b with the head on the last rank and with a sharded vocabulary, simulated, for several sizes of the vocabulary.

The model has about 4 billion parameters: 32 layers of dim 3072 with SwiGLU of width 8192, on 8 ranks. Times are FLOPs
at 200 TFLOP/s; memory is weights, gradients and optimizer state (16 bytes per parameter) and activations.
"""
import argparse
import json
import os
import subprocess
import tempfile

RANKS, MICROBATCHES = 8, 64
DIM, LAYERS, HIDDEN, TOKENS = 3072, 32, 8192, 4096
RATE = 200e12  # FLOP/s
LINK = 50e9  # bytes/s
LAYER = 4 * DIM * DIM + 3 * DIM * HIDDEN  # parameters
STATE = 16  # bytes per parameter: bf16 weights and gradients, fp32 masters and moments
GIB = 2**30


def milliseconds(flops):
    return flops / RATE * 1e3


def stage_costs(sharded, vocabulary):
    """Costs of each stage: milliseconds, and GiB per microbatch."""
    layers = LAYERS // RANKS
    matmuls = layers * (2 * LAYER + 2 * TOKENS * DIM) * TOKENS
    hidden = 34 * DIM * TOKENS * layers  # bytes of activations that the backward reads
    stages = [{"forward": milliseconds(matmuls), "backward_input": milliseconds(matmuls),
               "backward_weight": milliseconds(matmuls), "activation": hidden / GIB} for _ in range(RANKS)]
    if not sharded:
        head = milliseconds(2 * DIM * vocabulary * TOKENS)
        for key in ("forward", "backward_input", "backward_weight"):
            stages[-1][key] += head
        stages[-1]["activation"] += 4 * vocabulary * TOKENS / GIB
    return stages


def simulate(program, folder, sharded, vocabulary):
    config = {"schedule": "1f1b", "ranks": RANKS, "microbatches": MICROBATCHES,
              "comm": 2 * DIM * TOKENS / LINK * 1e3, "stage_costs": stage_costs(sharded, vocabulary)}
    if sharded:
        head = milliseconds(2 * DIM * vocabulary * TOKENS) / RANKS
        config["pass"] = ["vocabulary"]
        config["price"] = [f"s={2 * head}", f"t={head}", "embed=0.02", f"exchange={2 * config['comm']}",
                           f"softmax={4 * vocabulary * TOKENS / RANKS / GIB}"]
    path = os.path.join(folder, "config.yaml")
    with open(path, "w") as file:
        json.dump(config, file)  # JSON is YAML
    done = subprocess.run([program, "simulate", path, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["schedules"][0]


def memory(result, sharded, vocabulary):
    """GiB by rank."""
    table = DIM * vocabulary  # rows of the embedding or the head
    amounts = []
    for rank, figures in enumerate(result["per_rank"]):
        parameters = LAYERS // RANKS * LAYER
        if sharded:
            parameters += 2 * table / RANKS
        else:
            parameters += table * ((rank == 0) + (rank == RANKS - 1))
        amounts.append(parameters * STATE / GIB + figures["peak_memory"])
    return amounts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/penstock")
    program = parser.parse_args().program
    print("| vocabulary | | step (ms) | bubble | memory by rank (GiB) |")
    print("| ---: | --- | ---: | ---: | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for vocabulary in (32768, 65536, 131072, 262144):
            for sharded in (False, True):
                result = simulate(program, folder, sharded, vocabulary)
                amounts = memory(result, sharded, vocabulary)
                name = "sharded" if sharded else "1f1b"
                ranks = ", ".join(f"{amount:.1f}" for amount in amounts)
                print(f"| {vocabulary // 1024}k | {name} | {result['makespan']:.0f} | "
                      f"{100 * result['bubble']:.1f}% | {ranks} |")


if __name__ == "__main__":
    main()
