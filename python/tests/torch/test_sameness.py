"""What processes of one Pipeline must have in common: differences end all of them with one line that names them."""

from __future__ import annotations

import pytest
import torch
from forks import run_all

from penstock.torch.processes import sameness

_HEAD = """
import os, sys
import torch, penstock, penstock.torch as pt
from torch import nn

here, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

def stages(width=6, seed=0):
    torch.manual_seed(seed)
    return [nn.Sequential(nn.Linear(6, width), nn.Dropout(0.1), nn.Linear(width, 6)) for _ in range(2)]

def pipeline(modules=None, *, schedule="1f1b", **others):
    given = {"ranks": 2, "microbatches": 4, "loss": nn.functional.mse_loss, "timeout": 60, **others}
    return pt.Pipeline(modules or stages(), schedule, **given)

def attempt(name, call):
    try:
        say("case", name, repr(call()))
    except (pt.Error, TypeError) as error:
        say("case", name, str(error))
"""


def _run(script: str, processes: int = 2, **environment: str) -> dict[str, set[str]]:
    """Returns what each case of a script printed, on all processes, which must end well."""
    ended = run_all(_HEAD + script, processes=processes, **environment)
    assert all(code == 0 for code, _, _ in ended), ended
    found: dict[str, set[str]] = {}
    for _, out, _ in ended:
        for line in out.splitlines():
            _, name, text = line.split(" ", 2)
            found.setdefault(name, set()).add(text)
    return found


# By case: the arguments of process 0, of process 1, and what the line says.
_ARGUMENTS = {
    "loss_weight": ("{}", "{'loss_weight': lambda y: 1}", "loss_weight is None on process 0, but given on process 1: "),
    "optimizer": ("{'optimizer': None}", "{}", "optimizer is None on process 0, but given on process 1: "),
    "lr_scheduler": ("{'lr_scheduler': lambda o: None}", "{}", "lr_scheduler is given on process 0, but None on process 1: "),
    "clip": ("{}", "{'clip_grad_norm': 1.0}", "clip_grad_norm is 0 on process 0, but 1 on process 1: "),
    "skip": ("{'skip_nonfinite': True}", "{}", "skip_nonfinite is True on process 0, but False on process 1: "),
    "exact": ("{'exact': True}", "{}", "exact is True on process 0, but False on process 1: "),
    "precision": ("{'precision': torch.bfloat16}", "{}", "precision is torch.bfloat16 on process 0, but None on process 1: "),
    "sums": ("{}", "{'gradient_dtype': torch.bfloat16}", "gradient_dtype is torch.float32 on process 0, but torch.bfloat16 on "),
    "zero": ("{}", "{'zero': 1, 'data_parallel': 2}", "data_parallel is 1 on process 0, but 2 on process 1; zero is 0 on "),
    "seed": ("{'seed': 1}", "{}", "seed is 1 on process 0, but None on process 1: "),
    "slices": ("{}", "{'slices': 2}", "slices is 1 on process 0, but 2 on process 1: "),
    "microbatches": ("{}", "{'microbatches': 8}", "microbatches is 4 on process 0, but 8 on process 1: "),
    "recompute": ("{}", "{'recompute': {'hold': 'least'}}", "recompute is None on process 0, but {'hold': 'least'} on "),
    "schedule": ("{}", "{'schedule': 'gpipe'}", "the schedule's algorithm is '1f1b' on process 0, but 'gpipe' on process 1"),
    "fails": ("{'optimizer': None, 'zero': 1}", "{'zero': 1}", "optimizer is None on process 0, but given on process 1: "),
    "unknown": ("{}", "{'losses': 1}", "Pipeline: there is no keyword 'losses'; did you mean 'loss'?"),
    "wrong": ("{}", "{'exact': 'no'}", "exact is False on process 0, but 'no' on process 1: "),
    "transport": ("{}", "{'transport': 'c10d'}", "transport is 'tcp' on process 0, but 'c10d' on process 1: "),
    "actions": (
        "{}",
        "{'schedule': edited()}",
        "the schedule's actions of rank 0 differ between process 0 and process 1: ",
    ),
    "width": ("{}", "{'modules': stages(7)}", "stage 0: parameter '0.weight' is [6, 6] on process 0, but [7, 6] on process 1; "),
    "made": (
        "{'modules': [stages()[0], None]}",
        "{'modules': [None, nn.Linear(6, 6)], 'threads': 1, 'timeout': 50, 'outputs': True}",
        "'made'",
    ),
}


def test_differing_arguments_end_all_processes_with_one_line() -> None:
    cases = ", ".join(f"({name!r}, lambda: {zero}, lambda: {one})" for name, (zero, one, _) in _ARGUMENTS.items())
    script = f"""
def edited():
    made = penstock.schedule("1f1b", ranks=2, microbatches=4)
    lane = made.lanes[0].copy()
    lane[[1, 2]] = lane[[2, 1]] if str(made.lanes[0][1]) != str(made.lanes[0][2]) else lane[[1, 2]]
    made.lanes[0] = penstock.schedule("gpipe", ranks=2, microbatches=4).lanes[0]
    return made

for name, *given in [{cases}]:
    attempt(name, lambda: pipeline(**given[here]()) and "made")
"""
    found = _run(script)
    for name, (_, _, line) in _ARGUMENTS.items():
        texts = found[name]
        assert all(line in text for text in texts), (name, texts)
        assert len(texts) == 1 or name in ("unknown",), (name, texts)


@pytest.mark.parametrize("of", ["Penstock", "torch", "Python"])
def test_differing_versions(of: str) -> None:
    change = {
        "Penstock": "penstock.__version__ = '0.0.1'",
        "torch": "torch.__version__ = '2.0.1'",
        "Python": "sys.version_info = (3, 1, 4)",
    }[of]
    found = _run(f"if here == 1:\n    {change}\nattempt('version', pipeline)")
    assert len(found["version"]) == 1
    assert f"the version of {of} is " in found["version"].pop()


def test_the_first_transport_may_differ() -> None:
    found = _run(
        """
attempt("first", lambda: pipeline(**[{}, {'transport': 'c10d'}][here]))
attempt("then", lambda: pipeline() and 1)
"""
    )
    assert found["then"] == {"1"}
    (text,) = found["first"]
    assert text.startswith("transport is 'tcp' on process 0, but 'c10d' on process 1: pass the same arguments to Pipeline")


def test_without_a_seed_all_processes_use_process_0s() -> None:
    script = """
modules = stages()
x, y = torch.randn(8, 6), torch.randn(8, 6)
torch.manual_seed(5 + here)
attempt("own", lambda: pipeline(modules).step(x, y))
modules = stages()
attempt("given", lambda: pipeline(modules, seed=5).step(x, y))
"""
    found = _run(script)
    assert found["own"] == found["given"] and len(found["own"]) == 1


# Statements of process 1 before the second step (`pipe` has trained one), and what the line says.
_BATCHES = {
    "shuffled": ("x = x.flip(0); y = y.flip(0)", "inputs differ between process 0 and process 1: pass the same batch"),
    "targets": ("y = y + 1e-6", "targets differ between process 0 and process 1: pass the same batch"),
    "one": ("x = x.clone(); x[7, 5] += 1", "inputs differ between process 0 and process 1"),
    "fewer": ("x, y = x[:4], y[:4]", "the number of samples is 8 on process 0, but 4 on process 1"),
    "equal": ("x, y = x.clone(), y.t().contiguous().t()", None),
    "placeholder": ("x = torch.zeros(8, 1)", None),
}


def test_differing_batches_end_a_step_with_one_line_and_the_next_one_trains() -> None:
    cases = {name: change for name, (change, _) in _BATCHES.items()}
    script = f"""
first, second = torch.randn(2, 8, 6)
for method in ("step", "steps", "eval_step"):
    pipe = pipeline()
    call = getattr(pipe, method) if method != "steps" else lambda x, y: pipe.steps([(first, second), (x, y)])[1]
    for name, change in {cases!r}.items():
        x, y = given = first, second
        if here == 1:
            exec(change)
        attempt(f"{{method}}-{{name}}", lambda: call(x, y))
    attempt(f"{{method}}-last", lambda: call(first, second))
"""
    found = _run(script)
    for method in ("step", "steps", "eval_step"):
        for name, (_, line) in _BATCHES.items():
            (text,) = found[f"{method}-{name}"]
            assert text.startswith("steps: batch 1: " if method == "steps" else f"{method}: ") == (line is not None), text
            assert line is None or line in text
        (last,) = found[f"{method}-last"]
        assert float(last) > 0


def test_names_of_tensors_constants_and_weights_of_batches() -> None:
    script = """
class First(nn.Linear):
    def forward(self, x, mask, scale):
        return super().forward(x * mask) * scale
modules = [First(6, 6), nn.Linear(6, 6)]
x, y = torch.randn(8, 6), torch.randn(8, 6)
def batch(mask=1.0, scale=2.0):
    return {"x": x, "mask": torch.full((8, 6), mask), "scale": scale}
attempt("mask", lambda: pipeline(modules).step(batch(mask=1.0 + here), y))
attempt("scale", lambda: pipeline(modules).step(batch(scale=2.0 + here), y))
weighted = pipeline(loss_weight=lambda y: (y > 0).sum())
attempt("weights", lambda: weighted.step(x, y if here else torch.ones(8, 1)))
attempt("calls", lambda: weighted.eval_step(x) if here else weighted.step(x, y))
attempt("autocast", lambda: torch.autocast("cpu", torch.bfloat16, enabled=here == 1).__enter__() and weighted.step(x, y))
"""
    found = _run(script)
    assert all(len(texts) == 1 for texts in found.values()), found
    lines = {name: texts.pop() for name, texts in found.items()}
    assert lines["mask"].startswith("step: inputs['mask'] differ between process 0 and process 1: pass the same batch")
    assert lines["scale"].startswith("step: constant 0 of the inputs is 2.0 on process 0, but 3.0 on process 1: ")
    assert lines["weights"].startswith("step: the weights of microbatches differ between process 0 and process 1: ")
    assert lines["calls"].startswith("process 0 calls step, but process 1 calls eval_step: ")
    assert lines["autocast"].startswith("step: torch.autocast is off on process 0, but torch.bfloat16 on process 1: ")


def test_shared_weights_and_replicas_begin_alike() -> None:
    script = """
x, y = torch.randn(8, 6), torch.randn(8, 6)
def tied(seed):
    first, last = stages(seed=seed)
    last[0].weight = first[0].weight
    return [first, last]
def sgd(lr):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr)
attempt("values", lambda: pipeline(tied(here)).step(x, y))
attempt("rate", lambda: pipeline(tied(0), optimizer=sgd(0.1 + here)))
attempt("rates", lambda: pipeline(stages(), optimizer=sgd(0.1 + here)) and 1)
attempt("trained", lambda: pipeline(tied(0)).step(x, y))
def replicas(p=0.1, **others):
    modules = stages()
    modules[0][1].p = p
    return pipeline(modules, data_parallel=2, ranks=2, **others)
attempt("dropout", lambda: replicas(0.1 + here))
attempt("optimizers", lambda: replicas(optimizer=sgd(0.1 + here)))
attempt("frozen", lambda: replicas_frozen())
def replicas_frozen():
    modules = stages()
    modules[1][2].bias.requires_grad_(here == 0)
    return pipeline(modules, data_parallel=2)
attempt("losses", lambda: pipeline(stages(), data_parallel=2, loss=[nn.MSELoss(), nn.L1Loss()][here]))
def modes():
    modules = stages()
    modules[0].train(here == 0)
    return pipeline(modules, data_parallel=2).step(x, y)
attempt("modes", modes)
"""
    found = _run(script.replace('attempt("frozen", lambda: replicas_frozen())\n', "") + '\nattempt("frozen", replicas_frozen)')
    assert all(len(texts) == 1 for texts in found.values()), found
    lines = {name: texts.pop() for name, texts in found.items()}
    shared = "parameter '0.weight' that stages [0, 1] share: "
    assert lines["values"].startswith(f"{shared}its values differ between process 0 and process 1: call torch.manual_seed")
    assert lines["rate"].startswith(f"{shared}the optimizer's lr is 0.1 on process 0, but 1.1 on process 1: ")
    assert lines["rates"] == "1"
    assert float(lines["trained"]) > 0
    assert "module '1' is Dropout(p=0.1, inplace=False) on process 0, but Dropout(p=1.1, inplace=False)" in lines["dropout"]
    assert lines["optimizers"].startswith("stage 0: the optimizer's lr of group 0 is 0.1 on process 0, but 1.1 on process 1: ")
    assert "stage 1: parameter '2.bias' is torch.float32, trained on process 0, but torch.float32, frozen on" in lines["frozen"]
    assert lines["losses"].startswith("loss is MSELoss(reduction=mean) on process 0, but L1Loss(reduction=mean) on process 1: ")
    assert lines["modes"].startswith("stage 0: module 'stage' is in train mode on process 0, but in eval mode on process 1; ")


@pytest.mark.parametrize("shape", [(7,), (16_384,), (100_000,), (65_536, 4), (4096, 16, 16), (3, 40_000), (1 << 20, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
def test_checksums_read_the_same_elements_of_every_column(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = torch.rand(shape) * 8
    tensor = (values > 4) if dtype is torch.bool else values.to(dtype)
    some = sameness.sampled(tensor)
    assert min(tensor.numel(), 8192) <= some.numel() <= 16_384
    strided = tensor.transpose(0, -1).contiguous().transpose(0, -1)
    assert sameness.checksum(sameness.sampled(strided)) == sameness.checksum(some)
    if shape[-1] < 1000:
        for column in range(shape[-1]):
            other = tensor.clone()
            other[..., column] = ~other[..., column] if dtype is torch.bool else other[..., column] + 1
            assert sameness.checksum(sameness.sampled(other)) != sameness.checksum(some)
