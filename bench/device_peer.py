"""transformers' Llama on one device, as bench/device.py compares it: by PyTorch alone, or by penstock.torch.Pipeline.
Prints a JSON line."""

import argparse
import json
import statistics
import time

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

# The weights' dtype, in fp32 with autocast, and whether torch.compile compiles the model.
PLAIN = {
    "eager": (torch.float32, False),
    "eager bf16 weights": (torch.bfloat16, False),
    "compiled": (torch.float32, True),
}
# The schedule, the ranks, and whether Pipeline casts the weights itself (precision) instead of autocast.
PIPELINES = {
    "Pipeline": ("1f1b", 1, False),
    "Pipeline precision": ("1f1b", 1, True),
    "Pipeline zbv": ("zbv", 2, False),
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


def llama(shape: dict, dtype: torch.dtype) -> nn.Module:
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
    with torch.device(shape["device"]):
        return LlamaForCausalLM(config).to(dtype).train()


def plain_step(shape: dict, dtype: torch.dtype, compiled: bool):
    """A step by PyTorch alone: gradients of the microbatches are added, then AdamW updates."""
    model = llama(shape, dtype)
    run = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    autocast = torch.autocast(torch.device(shape["device"]).type, torch.bfloat16, dtype == torch.float32)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        losses = []
        for microbatch in tokens:
            with autocast:
                losses.append(run(input_ids=microbatch, labels=microbatch).loss / len(tokens))
            losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return torch.stack(losses).sum().detach()

    return step


def pipeline_step(shape: dict, schedule: str, ranks: int, casts: bool):
    """One step by Pipeline, with the loss that the model computes of its labels."""
    import penstock.torch as pt

    model = llama(shape, torch.float32)
    autocast = torch.autocast(torch.device(shape["device"]).type, torch.bfloat16, not casts)
    stages = [model]
    if ranks > 1:
        example = torch.zeros(1, shape["sequence"], dtype=torch.long, device=shape["device"])
        with autocast:
            stages = pt.split(model, example, 2 * ranks)

    def loss(output, targets):
        return nn.functional.cross_entropy(output.logits.float().flatten(0, 1), targets.flatten())

    precision = {"precision": torch.bfloat16} if casts else {}
    pipe = pt.Pipeline(
        stages,
        schedule,
        ranks=ranks,
        microbatches=shape["microbatches"],
        loss=loss,
        optimizer=lambda parameters: pt.AdamW(parameters, lr=3e-4, weight_decay=0.01),
        **precision,
    )

    def step(tokens: torch.Tensor) -> torch.Tensor:
        targets = nn.functional.pad(tokens[..., 1:], (0, 1), value=-100)
        with autocast:
            return pipe.step(tokens.flatten(0, 1), targets.flatten(0, 1))

    return step


def step_time(shape: dict, kind: str, steps: int) -> dict:
    """The median time of a step, in seconds, without the first two; and the loss after the last."""
    step = plain_step(shape, *PLAIN[kind]) if kind in PLAIN else pipeline_step(shape, *PIPELINES[kind])
    size = (shape["microbatches"], shape["batch"], shape["sequence"])
    tokens = torch.randint(0, 256, size, generator=torch.Generator().manual_seed(0)).to(shape["device"])
    times = []
    for _ in range(steps + 2):
        torch.accelerator.synchronize()
        start = time.perf_counter()
        loss = step(tokens)
        torch.accelerator.synchronize()
        times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times[2:]), "first": times[0], "loss": float(loss)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=json.loads, required=True)
    parser.add_argument("--kind", choices=[*PLAIN, *PIPELINES], required=True)
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    rate = matmul_rate(arguments.shape["device"])
    measured = step_time(arguments.shape, arguments.kind, arguments.steps)
    name = torch.get_device_module(arguments.shape["device"]).get_device_name()
    print(json.dumps({**measured, "matmul": rate, "device": name, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
