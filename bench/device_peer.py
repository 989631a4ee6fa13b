"""transformers' Llama on one device, as bench/device.py compares it: prints a JSON line per kind."""

import argparse
import json
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

# The weights' dtype, whether autocast computes in bf16, and whether torch.compile compiles the model.
KINDS = {
    "eager": (torch.float32, False),
    "eager bf16 weights": (torch.bfloat16, False),
    "compiled": (torch.float32, True),
}
MATMUL = 8192


def matmul_rate(device: str) -> float:
    """FLOP/s of a large bf16 matmul."""
    left, right = (torch.randn(MATMUL, MATMUL, device=device, dtype=torch.bfloat16) for _ in range(2))
    for repeats in (3, 20):
        torch.accelerator.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            left @ right
        torch.accelerator.synchronize()
    return 20 * 2 * MATMUL**3 / (time.perf_counter() - start)


def step_time(shape: dict, dtype: torch.dtype, compiled: bool, steps: int) -> float:
    """The median time of a step, in seconds, without the first two."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=shape["dim"],
        intermediate_size=shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        vocab_size=shape["vocabulary"],
        max_position_embeddings=shape["sequence"],
        tie_word_embeddings=False,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(shape["device"], dtype).train()
    run = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    size = (shape["microbatches"], shape["batch"], shape["sequence"])
    tokens = torch.randint(0, 256, size, device=shape["device"])
    autocast = torch.autocast(torch.device(shape["device"]).type, torch.bfloat16, dtype == torch.float32)
    times = []
    for _ in range(steps + 2):
        torch.accelerator.synchronize()
        start = time.perf_counter()
        for microbatch in tokens:
            with autocast:
                loss = run(input_ids=microbatch, labels=microbatch).loss / len(tokens)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.accelerator.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=json.loads, required=True)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    rate = matmul_rate(arguments.shape["device"])
    seconds = step_time(arguments.shape, *KINDS[arguments.kind], arguments.steps)
    name = torch.get_device_module(arguments.shape["device"]).get_device_name()
    print(json.dumps({"seconds": seconds, "matmul": rate, "device": name, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
