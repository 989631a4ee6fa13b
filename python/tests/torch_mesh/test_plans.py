"""Pipeline(mesh=, tensor=) divides modules of plain models, which then train as one process does."""

from __future__ import annotations

from torch_mesh.processes import cases_of, errors_of, expect_on_all

_HEAD = """
import torch, transformers, penstock.torch as pt
from torch import nn
from torch_mesh import parity

mesh = parity.mesh_of("pipeline tensor", 2, 2)
SIZES = dict(vocab_size=65, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             head_dim=8, tie_word_embeddings=False)

def loss_of(out, y):
    logits = out if isinstance(out, torch.Tensor) else out["logits"]
    return nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())

def adamw(parameters):
    return pt.AdamW(parameters, lr=1e-2, eps=1e-3)
"""

_TRAIN = (
    _HEAD
    + """
def train(kind, schedule, plan, at_least=4, **others):
    torch.manual_seed(0)
    config = getattr(transformers, kind + "Config")(**{**SIZES, **others})
    whole, model = (getattr(transformers, kind + "ForCausalLM")(config) for _ in range(2))
    model.load_state_dict(whole.state_dict())
    for each in (whole, model):
        each.model.norm.requires_grad_(False)
    inputs = [torch.randint(0, 65, (8, 12)) for _ in range(3)]
    stages = pt.split(model, inputs[0], parity.stages_of(schedule, 2))
    pipe = pt.Pipeline(stages, schedule, ranks=2, microbatches=4, loss=loss_of, optimizer=adamw, clip_grad_norm=0.5, mesh=mesh,
                       tensor=plan, timeout=60)
    optimizer = torch.optim.AdamW(whole.parameters(), lr=1e-2, eps=1e-3, weight_decay=1e-2)
    errors = parity.errors_of(pipe, [whole], loss_of, optimizer, [(x, x.roll(-1, 1)) for x in inputs], clip=0.5)
    divided = 0
    for index in parity.local_stages(pipe):
        for name, parameter in stages[index].named_parameters():
            is_part = isinstance(parameter, torch.distributed.tensor.DTensor)
            divided += is_part and parameter.to_local().shape != parameter.shape
            assert is_part or plan != "auto" or not any(each in name for each in ("embed", "head", "experts", "o_proj")), name
            errors[name] = parity.relative(parameter.full_tensor() if is_part else parameter, whole.get_parameter(name))
    assert divided >= at_least, divided
    assert not model.model.norm.weight.requires_grad
    parity.report(f"{kind}-{schedule}-{len(others)}", errors)
"""
)


def test_models_of_transformers() -> None:
    found = errors_of(
        _TRAIN
        + """
train("Llama", "zbv", "auto")
train("Qwen3", "1f1b", "auto")
train("Qwen2", "zb-h1", {"*.[qkv]_proj": "column", "*.o_proj": "row", "*.gate_proj": "column", "*.up_proj": "column", "*.down_proj": "row",
                         "lm_head": "column_gathered"})
train("Olmo2", "1f1b", "auto")
train("Llama", "zbv", "auto", tie_word_embeddings=True, pad_token_id=0)
"""
    )
    assert max(found.values()) < 2e-5, found


def test_mixtures_of_experts() -> None:
    found = errors_of(
        _TRAIN
        + """
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
train("Mixtral", "1f1b", "auto", num_local_experts=4, num_experts_per_tok=2)
train("Qwen3Moe", "zbv", "auto", **EXPERTS)
train("DeepseekV2", "1f1b", "auto", n_routed_experts=4, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1, num_experts_per_tok=2,
      moe_intermediate_size=16, q_lora_rank=16, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8, num_key_value_heads=4, head_dim=4)
train("Qwen3Moe", "zb-h1", {"*.experts": "experts", "*.embed_tokens": "embedding", "lm_head": "column_gathered"}, at_least=3, **EXPERTS,
      experts_implementation="batched_mm")
"""
    )
    assert max(found.values()) < 2e-5, found


_REFUSED = {
    "form": ("{'*.up': 'columns'}", "tensor: give 'auto', or a dict from patterns of modules' names to one of column, row"),
    "missing": ("{'*.q_prj': 'column'}", "tensor: no module of the stages has a name like '*.q_prj'"),
    "type": ("{'norm': 'column'}", "tensor: stage 0, norm: it is a LayerNorm, but 'column' divides a Linear: leave it out"),
    "size": ("{'up': 'column'}", "tensor: stage 0, up: 2 tensor ranks do not divide its outputs, 33, evenly"),
    "heads": ("{'q_proj': 'column'}", "tensor: stage 0, q_proj: 2 tensor ranks do not divide its 3 heads evenly"),
    "tied": ("{'tied': 'column'}", "tied.weight of stage 0 and again.weight of stage 1 are one tensor"),
    "experts": ("{'norm': 'experts'}", "tensor: stage 0, norm: it is a LayerNorm, but 'experts' divides experts of transformers"),
    "embedding": ("{'up': 'embedding'}", "tensor: stage 0, up: it is a Linear, but 'embedding' divides an Embedding: leave it out"),
    "rows": ("{'rows': 'embedding'}", "tensor: stage 0, rows: it has max_norm, which needs all rows: leave it out"),
    "latent": ("{'up': 'latent'}", "tensor: stage 0, up: 'latent' is for a Linear whose last outputs are rotary keys"),
    "auto": ("'auto'", "tensor: the stages have no module of transformers whose configuration has a plan"),
}


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    calls = "".join(
        f"""
with parity.said({name!r}):
    pt.Pipeline(stages, ranks=2, microbatches=4, loss=nn.functional.mse_loss, mesh=mesh, timeout=30, tensor={plan})
"""
        for name, (plan, _) in _REFUSED.items()
    )
    found = cases_of(
        _HEAD
        + """
class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.q_proj, self.head_dim = nn.Linear(32, 33), nn.LayerNorm(32), nn.Linear(32, 24), 8
        self.rows = nn.Embedding(8, 32, max_norm=1.0)

stages = [Stage(), Stage()]
stages[0].tied = nn.Linear(32, 32)
stages[1].again = nn.Linear(32, 32)
stages[1].again.weight = stages[0].tied.weight
"""
        + calls
        + """
with parity.said("mesh"):
    pt.Pipeline(stages, ranks=2, microbatches=4, loss=nn.functional.mse_loss, tensor={"up": "column"})
assert not any(isinstance(each, torch.distributed.tensor.DTensor) for stage in stages for each in stage.parameters())
"""
    )
    expect_on_all(found, {name: part for name, (_, part) in _REFUSED.items()})
    assert all("tensor: its ranks are a dimension of mesh" in line for line in found["mesh"]), found["mesh"]
