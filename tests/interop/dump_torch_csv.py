"""Writes torch's own schedules as the CSV files of torch_csv/, for the tests that read them.

    build/peer-venv/bin/python tests/interop/dump_torch_csv.py [FOLDER]

SCHEDULE_pP_vV_mM.csv has the compute actions that torch generates. SCHEDULE_pP_vV_mM.comms.csv has the same
schedule after torch's lowering, with SEND, RECV, UNSHARD, RESHARD and REDUCE_GRAD. With torch 2.15 or later, which also
has WAIT_SEND and WAIT_REDUCE_GRAD, it writes the schedules of WAITING to torch_csv_2.15/ instead: each with torch's
defaults, and (_tuned) with a budget of messages, staggered UNSHARDs and deferred waits for reductions. torch 2.11 cannot save GPipe
and 1F1B; their files have the result of `_get_pipeline_order`. The order of 1F1B never runs microbatch 0 on the last
rank, so torch's own check refuses it, as ours must. The 1F1B that torch executes is Interleaved1F1B with one
stage per rank.
"""
import pathlib
import sys

import torch
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, _PipelineScheduleRuntime

HERE = pathlib.Path(__file__).resolve().parent

# SINGLE: name: [(ranks, microbatches)]; MULTI: name: [(ranks, chunks, microbatches)]
SINGLE = {"GPipe": [(1, 2), (2, 1), (3, 4)], "1F1B": [(2, 3), (4, 6)]}
MULTI = {
    "LoopedBFS": [(2, 2, 3), (3, 1, 4), (2, 3, 2)],
    "Interleaved1F1B": [(1, 2, 3), (2, 1, 4), (4, 1, 8), (4, 1, 2), (2, 2, 4), (3, 2, 2), (4, 2, 10), (2, 3, 4)],
    "InterleavedZeroBubble": [(2, 1, 4), (4, 1, 8), (2, 2, 4), (3, 2, 2), (4, 2, 10), (2, 3, 4)],
    "ZBVZeroBubble": [(1, 2, 2), (2, 2, 4), (3, 2, 8), (4, 2, 3)],
    "DualPipeV": [(1, 2, 3), (2, 2, 4), (3, 2, 8)],
}
WAITING = {"LoopedBFS": (2, 3, 2), "Interleaved1F1B": (4, 2, 10), "InterleavedZeroBubble": (2, 3, 4), "ZBVZeroBubble": (3, 2, 8),
           "DualPipeV": (3, 2, 8)}
TUNING = {"max_outstanding_sends": 2, "unshard_lookahead": "auto", "defer_reduce_grad_wait": True}


class Stage:
    """The part of a stage that schedules use."""

    def __init__(self, index, ranks, stages):
        self.stage_index, self.num_stages = index, stages
        self.group_size, self.group_rank = ranks, 0
        self.submod = torch.nn.Identity()


def single(name, ranks, microbatches):
    return schedules.get_schedule_class(name)(Stage(0, ranks, ranks), microbatches)


def multi(name, ranks, chunks, microbatches, **options):
    stages = [Stage(chunk, ranks, ranks * chunks) for chunk in range(chunks)]
    return schedules.get_schedule_class(name)(stages, microbatches, loss_fn=torch.nn.MSELoss(), **options)


def dump(schedule, folder, stem):
    schedule._dump_csv(folder / f"{stem}.csv", format="compute_only")
    schedule._dump_csv(folder / f"{stem}.comms.csv", format="compute_comms")


def runtime(ranks, stages, microbatches):
    """Returns a runtime that can load a CSV of any schedule."""
    per_rank = [Stage(stage, ranks, stages) for stage in range(max(1, stages // ranks))]
    return _PipelineScheduleRuntime(per_rank, microbatches, loss_fn=torch.nn.MSELoss())


def main():
    waits = hasattr(schedules, "WAIT_SEND_F")
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / ("torch_csv_2.15" if waits else "torch_csv")
    folder.mkdir(parents=True, exist_ok=True)
    if waits:
        for name, (ranks, chunks, microbatches) in WAITING.items():
            stem = f"{name}_p{ranks}_v{chunks}_m{microbatches}"
            dump(multi(name, ranks, chunks, microbatches), folder, stem)
            dump(multi(name, ranks, chunks, microbatches, **TUNING), folder, f"{stem}_tuned")
        return
    for name, sizes in SINGLE.items():
        for ranks, microbatches in sizes:
            order = single(name, ranks, microbatches)._get_pipeline_order()
            loaded = runtime(ranks, ranks, microbatches)
            loaded.pipeline_order = order
            PipelineScheduleMulti._dump_csv(loaded, folder / f"{name}_p{ranks}_v1_m{microbatches}.csv")
    for name, sizes in MULTI.items():
        for ranks, chunks, microbatches in sizes:
            dump(multi(name, ranks, chunks, microbatches), folder, f"{name}_p{ranks}_v{chunks}_m{microbatches}")


if __name__ == "__main__":
    main()
