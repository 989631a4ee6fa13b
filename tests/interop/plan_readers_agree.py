"""The readers of torchtitan and Megatron-Core get out of `penstock plan --configs` what the plan says.

Usage: plan_readers_agree.py PENSTOCK PYTHON READERS. PYTHON has torch, and READERS is a folder with the packages torchtitan and
megatron-core; exit code 77 if one of them is missing.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest.mock

SCRIPT = pathlib.Path(__file__).resolve()
DENSE = ("--model", "llama-3-8b", "--nodes", "2x8", "--global-batch", 64)
EXPERTS = ("--model", "qwen3-30b-a3b", "--nodes", "4x8", "--global-batch", 64)
PLANS = {
    "torchtitan": [(*DENSE, "-p", 4), (*DENSE, "-p", 4, "--tensor", 2, "--chunks", 2), (*DENSE, "-p", 1, "--recompute", "full"),
                   (*DENSE, "-p", 2, "--context", 2, "--sequence", 16384), (*EXPERTS, "-p", 4, "--expert", 8)],
    "megatron": [(*DENSE, "-p", 4), (*DENSE, "-p", 4, "--tensor", 2, "--chunks", 2), ("--model", "llama-3-70b", "--nodes", "4x8",
                 "--global-batch", 256, "-p", 4), (*EXPERTS, "-p", 4, "--expert", 8)]}


def read_torchtitan(path):
    import torch.distributed.fsdp
    if not hasattr(torch.distributed.fsdp, "DataParallelMeshDims"):
        sys.exit(77)  # torchtitan 0.3 needs a newer torch
    for name in ("datasets", "datasets.distributed", "torch.utils.tensorboard"):  # which reading does not call
        sys.modules[name] = unittest.mock.MagicMock()
    from torchtitan.config import ConfigManager
    sys.path.insert(0, str(pathlib.Path(path).parent))
    config = ConfigManager().parse_args(["--module", pathlib.Path(path).stem, "--config", "plan"])
    parallel, training = config.parallelism, config.training
    parts = parallel.module_fqns_per_model_part
    is_full = config.activation_checkpoint is not None
    return {"tensor": parallel.tensor_parallel_degree, "pipeline": parallel.pipeline_parallel_degree,
            "context": parallel.context_parallel_degree, "expert": parallel.expert_parallel_degree,
            "data": parallel.data_parallel_replicate_degree * parallel.data_parallel_shard_degree,
            "batch": training.global_batch_size, "recompute": "full" if is_full else "none",
            "layers": parts and [sum(name.startswith("layers.") for name in part) for part in parts]}


def read_megatron(path):
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    words = subprocess.run(["bash", "-c", '. "$1" && printf "%s\\n" "${MEGATRON_ARGS[@]}"', "bash", path], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    value = {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("--")}
    ranks = int(value["--pipeline-model-parallel-size"])
    layout = PipelineParallelLayerLayout(value["--pipeline-model-parallel-layout"], ranks)
    layout.validate_layer_layout(int(value["--num-layers"]), 0)
    chunks = len(layout.layout[0])
    return {"pipeline": ranks, "chunks": chunks,
            "layers": [layout.layout[rank][chunk].count(LayerType.decoder) for chunk in range(chunks) for rank in range(ranks)]}


def expected(best):
    layers = [int(count) for count in best["layout"].split(",")] if best["layout"] else None
    return {**best, "batch": best["data"] * best["micro_batch"] * best["microbatches"], "layers": layers}


def check(program, python, readers):
    files = {"torchtitan": "torchtitan_plan.py", "megatron": "megatron.sh"}
    for framework, plans in PLANS.items():
        for words in plans:
            with tempfile.TemporaryDirectory() as folder:
                command = [program, "plan", *map(str, words), "--device", "h100", "--for", framework, "--configs", f"{folder}/out", "--json"]
                run = subprocess.run(command, capture_output=True, check=True, text=True)
                best = expected(json.loads(run.stdout)["best"])
                path = f"{folder}/out/{files[framework]}"
                read = subprocess.run([python, "-W", "ignore", SCRIPT, framework, path], capture_output=True, text=True,
                                      env={**os.environ, "PYTHONPATH": readers})
                if read.returncode == 77:
                    continue
                assert read.returncode == 0, (words, read.stderr)
                found = json.loads(re.search(r"^\{.*\}$", read.stdout, re.MULTILINE)[0])
                assert found == {key: best[key] for key in found}, (words, found, best)


def main():
    if len(sys.argv) == 3:
        read = {"torchtitan": read_torchtitan, "megatron": read_megatron}[sys.argv[1]]
        print(json.dumps(read(sys.argv[2])))
        return
    program, python, readers = sys.argv[1:]
    packages = list(pathlib.Path(readers).glob("lib/python3*/site-packages"))
    if not packages or not pathlib.Path(python).exists():
        print("torch, torchtitan or megatron-core is missing: run ./test")
        sys.exit(77)
    check(program, python, str(packages[0]))


main()
