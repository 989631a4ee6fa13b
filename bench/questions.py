"""The questions of docs/plan.md that an expert asked, with our answers and what was published, as rows of its table."""
import argparse
import json
import shlex
import subprocess

# A question, the options of `penstock plan`, what was published, and why both differ.
QUESTIONS = [
    ("70B, 64 H100, batch 128, Megatron", "--model llama-3-70b --device h100 --nodes 8x8 --sequence 8192 --global-batch 128 --for megatron",
     "NVIDIA: tensor 4, pipeline 4, context 2, 5 chunks, 14.7 s"),
    ("405B, 1024 H100, batch 512, Megatron", "--model llama-3-405b --device h100 --nodes 128x8 --sequence 8192 --global-batch 512 --for megatron",
     "Meta: tensor 8, pipeline 16; NVIDIA: tensor 8, pipeline 8, context 2, 8 chunks"),
    ("DeepSeek-V3, 256 H800, batch 512, Megatron",
     "--model deepseek-v3 --device h800 --nodes 32x8 --sequence 4096 --global-batch 512 --for megatron",
     "AutoModel on H100: pipeline 4, expert 64, 1002 tokens/s each; DeepSeek on 2048: pipeline 16, expert 64, FP8, 1543"),
    ("Qwen3 235B, 32 MI300X, batch 512, torchtitan",
     "--model qwen3-235b-a22b --device mi300x --nodes 4x8 --sequence 4096 --global-batch 512 --for torchtitan", "-"),
    ("8B, 8 A100 of 40 GB, batch 64, torchtitan",
     "--model llama-3-8b --device a100-40gb --nodes 1x8 --sequence 8192 --global-batch 64 --for torchtitan", "torchtitan: FSDP over 8"),
    ("Qwen3 30B, 16 H100, batch 512, Megatron",
     "--model qwen3-30b-a3b --device h100 --nodes 2x8 --sequence 4096 --global-batch 512 --for megatron",
     "NVIDIA: pipeline 2, expert 8, later expert 16"),
    ("8B at 128k, 32 H100, batch 32, Megatron",
     "--model llama-3-8b --device h100 --nodes 4x8 --sequence 131072 --global-batch 32 --for megatron",
     "NeMo, Llama-2 7B on 128: tensor 4, context 4, data 8"),
    ("7B on 4 devices of 24 GB, batch 64, Megatron",
     "--model llama-2-7b --device a10g --nodes 1x4 --sequence 4096 --global-batch 64 --for megatron",
     "ZeRO-Offload, states of 8 bits, LoRA"),
    ("70B, two sites with 1 Gbit/s, batch 512, Megatron",
     "--model llama-3-70b --device h100 --nodes 16x8 --sequence 8192 --global-batch 512 --sites 2 --site-bandwidth 1Gbit/s --site-latency 20ms "
     "--for megatron", "-"),
    ("70B, 32 H100 and 32 A100, batch 256, Megatron",
     "--model llama-3-70b --device h100+a100 --nodes 4x8+4x8 --sequence 8192 --global-batch 256 --for megatron", "-"),
    ("8B LoRA, 8 L4, batch 64, Megatron",
     "--model llama-3-8b --device l4 --nodes 1x8 --sequence 4096 --global-batch 64 --lora --for megatron", "-"),
]


def dimensions(plan):
    """Returns the ranks that are more than one, and what else the plan chose."""
    parts = [f"{name} {plan[name]}" for name in ("tensor", "pipeline", "context", "data", "expert") if plan[name] > 1]
    if plan["chunks"] > 1:
        parts.append(f"{plan['chunks']} chunks")
    if plan["pipeline"] > 1:
        parts.append(f"`{plan['schedule']}`")
    parts += [f"{name} {plan[name]}" for name in ("zero",) if plan[name] == 3]
    parts += [f"recompute {plan['recompute']}"] if plan["recompute"] != "none" else []
    parts += [str(plan[name]) for name in ("dispatcher", "across_sites") if name in plan]
    parts += [f"moments in {plan['optimizer_states']}"] if "optimizer_states" in plan else []
    parts += ["states on the host"] if "offloaded_states" in plan else []
    return ", ".join(parts)


def answer(program, words):
    done = subprocess.run([program, "plan", *shlex.split(words), "--json"], capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip().removeprefix("penstock: error: ")
    found = json.loads(done.stdout)
    best, error = found["best"], found["best"]["measured"]["error"]
    off = f", {100 * error:.0f}% off in measured runs" if error is not None else ""
    nodes, devices = shlex.split(words)[shlex.split(words).index("--nodes") + 1], 0
    for group in nodes.split("+"):
        count, each = map(int, group.split("x"))
        devices += count * each
    return f"{dimensions(best)}: {best['step_time']:.1f} s, {best['tokens_per_second'] / devices:.0f} tokens/s each{off}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/penstock")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of questions, from 1")
    options = parser.parse_args()
    print("| | question | our answer | published |")
    print("| ---: | --- | --- | --- |")
    for number, (question, words, published) in enumerate(QUESTIONS, 1):
        if not options.only or number in options.only:
            print(f"| {number} | {question} | {answer(options.program, words)} | {published} |", flush=True)


if __name__ == "__main__":
    main()
