"""torch.distributed.pipelining reads our CSV and trains with it: torch_peer.py PROGRAM PEER_PYTHON.

Any Python can start it. It continues in PEER_PYTHON, which has PyPI torch (tools/peer-test installs it). Without
PEER_PYTHON the test is skipped with exit code 77 and the reason.

1. For every schedule of the catalog at several sizes, `_load_csv` reads the output of `schedule --torch` as the
   same actions and lowers it to a schedule that torch's simulator completes. It reads the output of
   `--torch --lower` as a schedule with communication. `--torch` refuses schedules that torch does not support.
2. torch trains with our zb-auto, interleaved-zb, v-half and others on Gloo, one process per rank. The gradients
   equal torch's own Schedule1F1B's on the same layers, data and loss. With torch 2.15 or later, lowered files wait for
   messages, of which a rank has at most two in flight.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
REFUSED = {"dualpipe", "chimera", "pipedream", "pipedream-2bw"}
LOAD_SIZES = [(1, 2), (2, 3), (3, 7), (4, 8), (5, 4)]
# Name, options, ranks. torch trains with each schedule twice: as it lowers the schedule itself, and with our SEND,
# RECV and REDUCE_GRAD (--lower). Schedules that a pass has changed are trained only with --lower. All accumulate
# gradients in the order of the microbatches, as 1F1B does.
TRAINED = [("zb-auto", ["--memory-limit", "2", "--cost", "3,2,4"], 4), ("interleaved-zb", ["--chunks", "2"], 4),
           ("interleaved", ["--pass", "sharding"], 4), ("hanayo", ["--waves", "2"], 4),
           *[(name, [], ranks) for ranks in (4, 2)
             for name in ("1f1b", "zb-h1", "zb-h2", "zb-auto", "zbv", "v-half", "v-min", "dualpipev")],
           ("interleaved-zb", ["--chunks", "4"], 2)]
MICROBATCHES, LAYERS, WIDTH, BATCH = 8, 16, 8, 16


def write_csv(program, path, *words):
    """Runs `penstock schedule`. Returns (stages, None), or (None, the error line) if it refuses."""
    words = [program, "schedule", *map(str, words), "--torch", "--json", "-o", str(path)]
    result = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    if result.returncode:
        return None, result.stderr.strip()
    return json.loads(result.stdout)["stages"], None


def lowering():
    """Returns the options of a lowered file. Since 2.15, torch needs a wait for each SEND and REDUCE_GRAD."""
    from torch.distributed.pipelining import schedules  # pylint: disable=import-outside-toplevel

    return ["--lower", *(["--pass", "wait-send=2,reduce-grad=wait"] if hasattr(schedules, "WAIT_SEND_F") else [])]


# ---- 1: loading ------------------------------------------------------------------------------------

def check_messages(lanes, ranks_of):
    """Checks that receives are in the order of sends between any two ranks: Gloo and NCCL match only by order."""
    sent, received = {}, {}
    for rank, lane in lanes.items():
        for action in lane:
            kind, stage = action.computation_type.value, action.stage_index
            if kind.startswith("SEND"):
                to = stage + 1 if kind == "SEND_F" else stage - 1
                sent.setdefault((rank, ranks_of[to]), []).append((to, kind[-1], action.microbatch_index))
            elif kind.startswith("RECV"):
                origin = stage - 1 if kind == "RECV_F" else stage + 1
                received.setdefault((ranks_of[origin], rank), []).append((stage, kind[-1], action.microbatch_index))
    assert sent == received, "torch would match a message with another one's receive"


def simulate(schedule):
    """Runs torch's simulator, which supports neither sharding nor pairs. It raises on a deadlock."""
    from torch.distributed.pipelining import schedules  # pylint: disable=import-outside-toplevel

    sharding = ("UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD")
    lanes = {rank: [action for action in lane if action.computation_type.value not in sharding]
             for rank, lane in schedule.pipeline_order_with_comms.items()}
    if not any(action.sub_actions for lane in lanes.values() for action in lane):
        schedules._simulate_comms_compute(lanes, lambda s: schedule.stage_index_to_group_rank[s], schedule._num_stages)


def check_loads(program, folder):
    import dump_torch_csv  # needs torch  # pylint: disable=import-outside-toplevel

    listed = subprocess.run([program, "schedules", "--json"], capture_output=True, check=True).stdout
    catalog = json.loads(listed)["schedules"]
    loaded, refused = 0, set()
    for row in catalog:
        for ranks, microbatches in LOAD_SIZES:
            for lower in (False, True):
                path = folder / "schedule.csv"
                words = [row["name"], "-p", ranks, "-m", microbatches] + (lowering() if lower else [])
                stages, error = write_csv(program, path, *words)
                if error:
                    if "torch does not support" in error:
                        refused.add(row["name"])
                    continue  # otherwise the algorithm does not support this size
                cells = [[cell for cell in line.split(",") if cell] for line in path.read_text().splitlines()]
                schedule = dump_torch_csv.runtime(ranks, stages, microbatches)
                schedule._load_csv(path, format="compute_comms" if lower else "compute_only")
                order = schedule.pipeline_order_with_comms if lower else schedule.pipeline_order
                assert [[str(a) for a in order[rank]] for rank in range(ranks)] == cells, words
                check_messages(schedule.pipeline_order_with_comms, schedule.stage_index_to_group_rank)
                simulate(schedule)
                loaded += 1
    assert refused == REFUSED, f"refused {refused}, not {REFUSED}"
    _, error = write_csv(program, folder / "slices.csv", "seq1f1b", "--slices", 2)
    assert error and "torch does not support slices" in error, error
    for name, cell in (("recompute", "RECOMPUTE"), ("offload", "OFFLOAD"), ("optimizer", "STEP")):
        _, error = write_csv(program, folder / "pass.csv", "v-half", "--pass", name)
        assert error and f"torch has no action {cell}" in error, error
    assert loaded >= 100, f"only {loaded} files were loaded"
    print(f"torch loads {loaded} files of {len(catalog) - len(refused)} schedules; "
          f"does not support {', '.join(sorted(refused))}")


# ---- 2: training ------------------------------------------------------------------------------

def make_layers(indices):
    import torch  # pylint: disable=import-outside-toplevel

    layers = []
    for index in indices:
        torch.manual_seed(index)
        layers.append(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()))
    return torch.nn.Sequential(*layers)


def gradients(stages, per_stage):
    """Returns gradients by the number of the layer in the whole model."""
    found = {}
    for stage in stages:
        for name, parameter in stage.submod.named_parameters():
            layer, rest = name.split(".", 1)
            found[f"{stage.stage_index * per_stage + int(layer)}.{rest}"] = parameter.grad
    return found


def make_stages(rank, placement):
    """Returns this rank's stages of a model in len(placement) stages, and the layers per stage.

    placement[s] is the rank of stage s.
    """
    from torch.distributed.pipelining import PipelineStage  # pylint: disable=import-outside-toplevel

    per_stage = LAYERS // len(placement)
    return [PipelineStage(make_layers(range(stage * per_stage, (stage + 1) * per_stage)), stage, len(placement), "cpu")
            for stage, owner in enumerate(placement) if owner == rank], per_stage


def train_rank(rank, ranks, folder, files):
    import torch  # pylint: disable=import-outside-toplevel
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B  # pylint: disable=import-outside-toplevel
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime  # pylint: disable=import-outside-toplevel

    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / f"store{ranks}"), ranks)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    # Gloo refuses torch's warm-up message from a vee's last rank to itself.
    neighbors = getattr(PipelineStage, "_get_init_p2p_neighbors_ops", None)  # not in 2.15
    if neighbors is not None:
        PipelineStage._get_init_p2p_neighbors_ops = lambda stage: [
            op for op in neighbors(stage) if op.group_peer != rank]

    torch.manual_seed(1000)
    batch, target = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    loss = torch.nn.MSELoss()

    def step(schedule, stages, losses):
        inputs = (batch,) if any(stage.is_first for stage in stages) else ()
        last = any(stage.is_last for stage in stages)
        schedule.step(*inputs, target=target if last else None, losses=losses if last else None)

    stages, per_stage = make_stages(rank, list(range(ranks)))
    own, want_losses = Schedule1F1B(stages[0], MICROBATCHES, loss_fn=loss), []
    step(own, stages, want_losses)
    everyone = [None] * ranks
    dist.all_gather_object(everyone, (gradients(stages, per_stage), want_losses))
    want = {name: grad for found, _ in everyone for name, grad in found.items()}
    want_losses = everyone[-1][1]
    assert len(want) == 2 * LAYERS and all(grad.abs().max() > 0 for grad in want.values())

    for label, path, placement in files:
        stages, per_stage = make_stages(rank, placement)
        schedule = _PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=loss)
        lowered = "--lower" in label
        schedule._load_csv(path, format="compute_comms" if lowered else "compute_only")
        losses = []
        step(schedule, stages, losses)
        for name, grad in gradients(stages, per_stage).items():
            assert torch.equal(grad, want[name]), f"{label}: {name}: off by {(grad - want[name]).abs().max()}"
        if losses:
            assert all(map(torch.equal, losses, want_losses)), label
        dist.barrier()
    dist.destroy_process_group()


def check_training(program, folder):
    import torch.multiprocessing as mp  # pylint: disable=import-outside-toplevel
    import dump_torch_csv  # pylint: disable=import-outside-toplevel

    for ranks in sorted({ranks for _, _, ranks in TRAINED}):
        files = []
        trained = [(name, [*options, *lower], wanted_ranks) for name, options, wanted_ranks in TRAINED
                   for lower in ([], lowering()) if lower or "--pass" not in options]
        for number, (name, options, wanted_ranks) in enumerate(trained):
            if wanted_ranks != ranks:
                continue
            path = folder / f"{number}.csv"
            stages, error = write_csv(program, path, name, "-p", ranks, "-m", MICROBATCHES, *options)
            assert error is None, error
            loaded = dump_torch_csv.runtime(ranks, stages, MICROBATCHES)
            loaded._load_csv(path, format="compute_comms" if "--lower" in options else "compute_only")
            placement = [loaded.stage_index_to_group_rank[stage] for stage in range(stages)]
            files.append((" ".join([name, *options]), path, placement))
        mp.spawn(train_rank, args=(ranks, folder, files), nprocs=ranks)
        print(f"torch trains on {ranks} Gloo ranks, gradients bitwise equal to its 1F1B's: "
              f"{', '.join(label for label, _, _ in files)}")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: torch_peer.py PROGRAM PEER_PYTHON")
    program, peer = sys.argv[1], pathlib.Path(sys.argv[2])
    if not (peer.parent.parent / ".complete").exists():
        print(f"skipped: PyPI torch is not at {peer}; tools/peer-test installs it")
        sys.exit(SKIPPED)
    if pathlib.Path(sys.executable).absolute() != peer.absolute():
        os.execv(peer, [str(peer), "-B", *sys.argv])
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory(prefix="penstock-peer-") as name:
        check_loads(program, pathlib.Path(name))
        check_training(program, pathlib.Path(name))


if __name__ == "__main__":
    main()
