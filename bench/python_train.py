"""Trains one of python_models.MODELS in two stages until it is killed: the unmodified model on the engine (--engine ours), or the
same layers as peer_stages.py by torch.distributed.pipelining on two processes, eager or compiled.

Appends a line to --progress for each step. Each process writes the bytes that it had before training to PROGRESS.PID.
"""
import argparse
import os
import resource
import socket
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import penstock.torch as pt
import peer_stages
import python_models


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def logits_of(output):
    return getattr(output, "logits", output)


def train(step, args, before, reports=True, steps=1):
    """Calls step(), which runs so many steps, until the process is killed."""
    with open("%s.%d" % (args.progress, os.getpid()), "w") as file:
        file.write(str(before))
    progress = os.open(args.progress if reports else os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        step()
        os.write(progress, b"\n" * steps)


def peer_worker(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    before = resident()
    size = python_models.SIZES[args.size]
    job = python_models.make(args.model, size)
    module = peer_stages.make(args.model, job.model, rank)
    x, y, loss = job.inputs, job.targets, job.loss
    del job
    dist.init_process_group("gloo", rank=rank, world_size=2)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=True)
    module = torch.compile(module) if args.engine == "compiled" else module
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, size.microbatches, loss_fn=loss)

    def step():
        if rank == 0:
            schedule.step(x)
        else:
            losses = []
            schedule.step(target=y, losses=losses)
            sum(each.item() for each in losses)  # as a training loop reports it, and as our step returns it
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        dist.barrier()

    train(step, args, before, reports=rank == 0)


def peer(args):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(peer_worker, (args, port), nprocs=2)


def ours(args):
    torch.set_num_threads(1)
    before = resident()
    size = python_models.SIZES[args.size]
    job = python_models.make(args.model, size)
    stages = job.model
    if not isinstance(stages, list):
        stages = pt.split(job.model, job.inputs[:size.samples], [job.begin] if job.begin else 2)
    pipe = pt.Pipeline(
        stages, args.schedule, ranks=2, microbatches=size.microbatches, threads=1, exact=args.exact,
        loss=lambda output, target: job.loss(logits_of(output), target), optimizer=lambda parameters: pt.AdamW(parameters, lr=1e-3))
    if args.together == 1:
        train(lambda: pipe.step(job.inputs, job.targets), args, before)
    else:
        batches = [(job.inputs, job.targets)] * args.together
        train(lambda: pipe.steps(batches), args, before, steps=args.together)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=python_models.MODELS, required=True)
    parser.add_argument("--size", choices=python_models.SIZES, required=True)
    parser.add_argument("--engine", choices=("ours", "eager", "compiled"), required=True)
    parser.add_argument("--schedule", default="1f1b", help="of ours; the peer has 1F1B, because others refuse compiled stages")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--together", type=int, default=1, help="how many steps one call runs, of ours")
    parser.add_argument("--progress", required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    (ours if args.engine == "ours" else peer)(args)


if __name__ == "__main__":
    main()
