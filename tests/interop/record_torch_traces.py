"""Records the traces of data/torch_*: pipelines that torch.distributed.pipelining runs under torch.profiler.

    build/peer-venv/bin/python tests/interop/record_torch_traces.py FOLDER

Each rank is a process on the CPU with gloo, and writes its own file, as export_chrome_trace does. Only the events
that rules read, and the first operators, are kept, so that the files stay small.
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B,
                                          ScheduleInterleavedZeroBubble)
from torch.profiler import ProfilerActivity, profile, schedule

# NAME: (schedule, ranks, chunks, microbatches, whether Python functions are recorded)
RUNS = {
    "torch_interleaved_1f1b": (ScheduleInterleaved1F1B, 2, 2, 4, True),
    "torch_zero_bubble": (ScheduleInterleavedZeroBubble, 2, 1, 4, False),
    "torch_gpipe": (ScheduleGPipe, 2, 1, 3, False),
    "torch_1f1b": (Schedule1F1B, 4, 1, 6, True),
}
KEPT = ("_one_chunk", "_wait_batch_p2p")
STEPS = 2
WIDTH = 64
OPERATORS = 20  # to keep


class Slow(torch.nn.Module):
    """Takes long enough that the overhead of the profiler does not dominate."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        time.sleep(0.004)
        return torch.relu(self.linear(x))


def trim(path):
    trace = json.loads(path.read_text())
    kept, operators = [], 0
    for event in trace["traceEvents"]:
        category = event.get("cat", "")
        operators += category == "cpu_op"
        if event["ph"] == "M" or category == "user_annotation" or \
                (category == "cpu_op" and operators <= OPERATORS) or \
                (category == "python_function" and any(part in event["name"] for part in KEPT)):
            event.pop("args", None) if event["ph"] != "M" else None
            kept.append(event)
    trace["traceEvents"] = kept
    trace.pop("deviceProperties", None)
    trace["traceName"] = path.name
    path.write_text(json.dumps(trace, separators=(",", ":")))


def run(rank, name, folder):
    kind, ranks, chunks, microbatches, with_stack = RUNS[name]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    stages = [PipelineStage(Slow(), rank + chunk * ranks, ranks * chunks, torch.device("cpu"))
              for chunk in range(chunks)]
    multi = issubclass(kind, torch.distributed.pipelining.schedules.PipelineScheduleMulti)
    pipeline = kind(stages if multi else stages[0], microbatches, loss_fn=torch.nn.functional.mse_loss)
    x = torch.randn(2 * microbatches, WIDTH)

    def step():
        arguments = (x,) if rank == 0 else ()
        last = rank == ranks - 1
        pipeline.step(*arguments, **({"target": x} if last else {}))

    path = folder / name / f"rank{rank}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    step()
    with profile(activities=[ProfilerActivity.CPU], with_stack=with_stack,
                 schedule=schedule(wait=0, warmup=1, active=STEPS),
                 on_trace_ready=lambda done: done.export_chrome_trace(str(path))) as profiler:
        for _ in range(1 + STEPS):
            step()
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()
    if "--whole" not in sys.argv:
        trim(path)


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, (_, ranks, *_) in RUNS.items():
        mp.spawn(run, (name, folder), nprocs=ranks)


if __name__ == "__main__":
    main()
