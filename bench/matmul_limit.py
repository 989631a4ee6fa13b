"""The limit of training throughput: only the matrix products of a model's projections.

Computes every product of a step (forward, backward for input, backward for weight) with the shapes of one microbatch,
in one process per rank with one thread each. The products of attention are excluded, because implementations differ in
them. Prints one JSON object: tokens per second of all processes together.
"""
import argparse
import json
import statistics
import time

import torch
import torch.multiprocessing as mp


def layer_shapes(args):
    shapes = [(args.dim, args.dim)] * 4 + [(args.dim, args.hidden)] * 2 + [(args.hidden, args.dim)]
    return shapes * args.layers + [(args.dim, args.vocabulary)]


def work(args, barrier, queue):
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    dtype = getattr(torch, args.dtype)
    layers = []
    for inputs, outputs in layer_shapes(args):
        x, g = torch.randn(args.sequence, inputs, dtype=dtype), torch.randn(args.sequence, outputs, dtype=dtype)
        w = torch.randn(outputs, inputs, dtype=dtype)
        layers.append((x, g, w, torch.empty_like(g), torch.empty_like(x), torch.empty_like(w)))
    times = []
    for _ in range(args.steps):
        barrier.wait()
        start = time.perf_counter()
        for x, g, w, y, dx, dw in layers:
            torch.mm(x, w.t(), out=y)
            torch.mm(g, w, out=dx)
            torch.mm(g.t(), x, out=dw)
        barrier.wait()
        times.append(time.perf_counter() - start)
    queue.put(args.sequence / statistics.median(times[2:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("ranks", 2), ("dim", 256), ("layers", 8), ("heads", 4), ("hidden", 688), ("sequence", 256),
                          ("vocabulary", 256), ("microbatches", 8), ("steps", 20)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    context = mp.get_context("spawn")
    queue, barrier = context.SimpleQueue(), context.Barrier(args.ranks)
    ranks = [context.Process(target=work, args=(args, barrier, queue)) for _ in range(args.ranks)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    print(json.dumps({"tokens_per_second": sum(queue.get() for _ in ranks)}))


if __name__ == "__main__":
    main()
