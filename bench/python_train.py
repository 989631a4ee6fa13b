"""Trains one of python_models.MODELS in two stages until it is killed: on the engine (--engine ours), or by
torch.distributed.pipelining on two processes, which get the same stages, eager or compiled.

Appends a line to --progress after each step. Each process writes the bytes that it had before training to PROGRESS.PID.
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
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import penstock.torch as pt
import python_models


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def two_stages(args):
    """Returns the job and the stages of its model."""
    size = python_models.SIZES[args.size]
    job = python_models.make(args.model, size)
    if isinstance(job.model, list):
        return job, job.model
    return job, pt.split(job.model, job.inputs[:size.samples], [job.begin] if job.begin else 2)


def logits_of(output):
    return getattr(output, "logits", output)


def train(step, args, before, reports=True):
    with open("%s.%d" % (args.progress, os.getpid()), "w") as file:
        file.write(str(before))
    progress = os.open(args.progress if reports else os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        step()
        os.write(progress, b"\n")


class First(nn.Module):
    """Sends what has gradients. The model's input reaches the last stage as an argument of its own."""

    def __init__(self, stage, sent):
        super().__init__()
        self.stage, self.sent = stage, sent  # which outputs to send

    def forward(self, x):
        outputs = self.stage(x)
        if isinstance(outputs, torch.Tensor):
            return outputs
        sent = tuple(outputs[i] for i in self.sent)
        return sent if len(sent) > 1 else sent[0]


class Last(nn.Module):
    def __init__(self, stage, takes_input):
        super().__init__()
        self.stage, self.takes_input = stage, takes_input

    def forward(self, *received, x):
        return logits_of(self.stage(*received, *([x] if self.takes_input else [])))


def peer_worker(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    before = resident()
    job, stages = two_stages(args)
    microbatches = python_models.SIZES[args.size].microbatches
    outputs = stages[0](job.inputs[:len(job.inputs) // microbatches])
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    sent = [i for i, output in enumerate(outputs) if output.requires_grad]
    module = First(stages[0], sent) if rank == 0 else Last(stages[1], len(sent) < len(outputs))
    x, y, loss = job.inputs, job.targets, job.loss
    del job, stages, outputs
    dist.init_process_group("gloo", rank=rank, world_size=2)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=True)
    module = torch.compile(module) if args.engine == "compiled" else module
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, microbatches, loss_fn=loss)

    def step():
        if rank == 0:
            schedule.step(x)
        else:
            losses = []
            schedule.step(x=x, target=y, losses=losses)
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
    job, stages = two_stages(args)
    pipe = pt.Pipeline(
        stages, "1f1b", ranks=2, microbatches=python_models.SIZES[args.size].microbatches, threads=1, exact=args.exact,
        loss=lambda output, target: job.loss(logits_of(output), target), optimizer=lambda parameters: pt.AdamW(parameters, lr=1e-3))
    train(lambda: pipe.step(job.inputs, job.targets), args, before)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=python_models.MODELS, required=True)
    parser.add_argument("--size", choices=python_models.SIZES, required=True)
    parser.add_argument("--engine", choices=("ours", "eager", "compiled"), required=True)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--progress", required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    (ours if args.engine == "ours" else peer)(args)


if __name__ == "__main__":
    main()
