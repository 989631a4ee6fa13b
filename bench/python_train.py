"""Tokens per second of penstock.torch.Pipeline with the peer's stages, as bench/peer_torch.py prints them. With --model,
of a model of transformers, which penstock.torch.split divides."""
import argparse
import json
import resource
import time

import torch
import transformers

import penstock.torch as pt
from peer_torch import StageModule, loss_fn


def whole_model(args):
    """Returns an unmodified model of transformers with these sizes."""
    sizes = dict(vocab_size=args.vocabulary, use_cache=False)
    if args.model == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_embd=args.dim, n_layer=args.layers, n_head=args.heads, n_positions=args.sequence, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, **sizes))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=args.dim, num_hidden_layers=args.layers, num_attention_heads=args.heads,
        intermediate_size=args.hidden, max_position_embeddings=args.sequence, **sizes))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("ranks", 2), ("chunks", 1), ("microbatches", 8), ("dim", 256), ("layers", 8), ("heads", 4),
                          ("hidden", 688), ("sequence", 256), ("vocabulary", 256), ("steps", 10), ("warmup", 3)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--model", choices=("llama", "gpt2"))
    args = parser.parse_args()
    shape = (args.microbatches, args.sequence)
    x, y = torch.randint(args.vocabulary, shape), torch.randint(args.vocabulary, shape)
    count, loss = args.ranks * args.chunks, loss_fn
    if args.model:
        stages = pt.split(whole_model(args), x[:1], count)
        loss = lambda output, target: loss_fn(output.logits, target)  # noqa: E731
    else:
        stages = [StageModule(args, stage, count) for stage in range(count)]
    pipe = pt.Pipeline(stages, args.schedule, ranks=args.ranks, microbatches=args.microbatches, loss=loss, exact=args.exact,
                       threads=1, optimizer=lambda parameters: pt.AdamW(parameters, lr=1e-3))
    times = []
    for _ in range(args.warmup + args.steps):
        start = time.perf_counter()
        pipe.step(x, y)
        times.append(time.perf_counter() - start)
    tokens = args.microbatches * args.sequence
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / args.ranks  # ranks are threads
    print(json.dumps({"tokens_per_second": [tokens / t for t in times[args.warmup:]], "resident": resident}))


if __name__ == "__main__":
    main()
