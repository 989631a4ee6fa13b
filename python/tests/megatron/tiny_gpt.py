"""Trains a tiny GPT of megatron-core on CPUs, by one of Megatron's own schedules or by one of ours."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import os
import pathlib
import random
import time
import warnings
from functools import partial
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
warnings.filterwarnings("ignore", module="megatron")

import cpu_shim  # noqa: E402
import penstock.megatron.installation  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from megatron.core import parallel_state as ps  # noqa: E402
from megatron.core import tensor_parallel  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads  # noqa: E402
from megatron.core.models.gpt import GPTModel, gpt_layer_specs  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func  # noqa: E402  # as scripts do, before install
from megatron.core.process_groups_config import ProcessGroupCollection  # noqa: E402
from megatron.core.timers import Timers  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402
from megatron.core.utils import get_attr_wrapped_model  # noqa: E402

VOCABULARY, HIDDEN, SEQUENCE, BATCH = 64, 32, 16, 2


@dataclasses.dataclass(frozen=True)
class Case:
    """A run: parallelism, Megatron's options, and the schedule (empty: Megatron's own)."""

    schedule: str = ""
    pp: int = 1
    vp: int = 1
    tp: int = 1
    dp: int = 1
    ep: int = 1
    sp: bool = False
    microbatches: int = 8
    steps: int = 2
    first_step: int = 0
    layers: int = 8
    tied: bool = True
    experts: int = 0
    mtp: int = 0
    layout: str = ""
    dtype: str = "float32"
    distributed_optimizer: bool = False
    overlap: bool = False
    align: bool = False
    bucket: int | None = None
    per_token: bool = False
    frees: bool = False
    recompute: str = ""
    combined: bool = False
    grouped: bool = False
    scale: float = 0
    variable: bool = False
    fused: bool = False
    timers: bool = False
    delays: bool = False
    evaluate: int = 0  # microbatches of an evaluation after each step
    save: str = ""
    load: str = ""
    keep: bool = False  # whether parameters keep the values with which Megatron creates them
    wrapped: bool = True  # whether models are built by the providers of the installation
    config: tuple[tuple[str, Any], ...] = ()  # further fields of TransformerConfig, set after its checks
    mutation: str = ""

    @property
    def world(self) -> int:
        """Processes."""
        return self.pp * self.tp * self.dp


def initialize(case: Case, rank: int, folder: str) -> None:
    """Joins the process group."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
    cpu_shim.install()
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=case.world, timeout=datetime.timedelta(seconds=90)
    )


def finish() -> None:
    """Leaves the process group."""
    dist.destroy_process_group()


def _config(case: Case) -> TransformerConfig:
    dtype = getattr(torch, case.dtype)
    extra: dict[str, Any] = {"moe_token_dispatcher_type": "alltoall"}
    if case.experts:
        extra.update(num_moe_experts=case.experts, moe_router_topk=2, moe_aux_loss_coeff=0.01, moe_router_dtype="fp64")
        extra.update(moe_router_load_balancing_type="aux_loss", moe_grouped_gemm=False)
    if case.recompute == "full":
        extra.update(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    elif case.recompute:
        extra.update(recompute_granularity="selective", recompute_modules=["core_attn"])
    if case.layout:
        extra["pipeline_model_parallel_layout"] = case.layout
    if case.mtp:
        extra["mtp_num_layers"] = case.mtp
    interleaved = case.vp > 1
    config = TransformerConfig(
        num_layers=case.layers,
        hidden_size=HIDDEN,
        num_attention_heads=4,
        use_cpu_initialization=True,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=case.dtype == "bfloat16",
        hidden_dropout=0,
        attention_dropout=0,
        pipeline_model_parallel_size=case.pp,
        virtual_pipeline_model_parallel_size=case.vp if interleaved else None,
        tensor_model_parallel_size=case.tp,
        sequence_parallel=case.sp,
        expert_model_parallel_size=case.ep,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=case.fused,
        persist_layer_norm=False,
        add_bias_linear=not case.experts,
        deallocate_pipeline_outputs=case.frees,
        batch_p2p_comm=not interleaved,
        overlap_p2p_comm=interleaved,
        calculate_per_token_loss=case.per_token,
        variable_seq_lengths=case.variable,
        **extra,
    )
    config.overlap_moe_expert_parallel_comm = case.combined  # after the checks, which want 16 bits
    config.moe_grouped_gemm = config.moe_use_legacy_grouped_gemm = case.grouped
    for name, value in case.config:
        setattr(config, name, value)
    if case.timers:
        config.timers = Timers(2, "minmax")
    return config


def model_provider(case: Case, layer_config: TransformerConfig) -> Any:
    def layers(vp_stage: int | None) -> Any:
        if case.experts:
            return gpt_layer_specs.get_gpt_decoder_block_spec(layer_config, use_transformer_engine=False, vp_stage=vp_stage)
        spec = gpt_layer_specs.get_gpt_layer_local_spec()
        if case.sp:
            spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = cpu_shim.norm()
        return spec

    def provider(
        pre_process: bool = True,
        post_process: bool = True,
        vp_stage: int | None = None,
        config: Any = None,
        pg_collection: Any = None,
    ) -> GPTModel:
        mtp = None
        if case.mtp:
            spec = gpt_layer_specs.get_gpt_layer_local_spec(num_experts=case.experts or None)
            mtp = gpt_layer_specs.get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False, vp_stage=vp_stage)
        return GPTModel(
            config,
            layers(vp_stage),
            VOCABULARY,
            SEQUENCE,
            pre_process=pre_process,
            post_process=post_process,
            share_embeddings_and_output_weights=case.tied,
            position_embedding_type="learned_absolute",
            vp_stage=vp_stage,
            pg_collection=pg_collection,
            mtp_block_spec=mtp,
        )

    return provider


def build(case: Case, provider: Any, config: TransformerConfig) -> list[Any]:
    """Builds the chunks as ``get_model`` of Megatron-LM does."""
    groups = ProcessGroupCollection.use_mpu_process_groups()
    first, last = groups.pp.rank() == 0, groups.pp.rank() == case.pp - 1
    if case.vp == 1:
        return [provider(pre_process=first, post_process=last, config=config, pg_collection=groups)]
    models = []
    for chunk in range(case.vp):
        ends = {"pre_process": first and chunk == 0, "post_process": last and chunk == case.vp - 1}
        models.append(provider(**ends, vp_stage=chunk, config=config, pg_collection=groups))
        models[-1].vp_stage = chunk
    return models


def global_name(model: Any, name: str) -> str:
    """Returns a parameter's name with the number of the layer in the whole model."""
    parts = name.split(".")
    if parts[:2] == ["decoder", "layers"]:
        parts[2] = str(model.decoder.layers[int(parts[2])].layer_number - 1)
    return ".".join(parts)


def fill(case: Case, models: list[Any]) -> None:
    """Gives parameters values that depend on their global name alone."""
    for model in models:
        for name, parameter in model.named_parameters():
            name = global_name(model, name)
            source = "embedding.word_embeddings.weight" if name == "output_layer.weight" and case.tied else name
            if ".local_experts." in name:
                source = f"{source} of {ps.get_expert_model_parallel_rank()}"
            shape = list(parameter.shape)
            split = getattr(parameter, "tensor_model_parallel", False)
            if split:
                shape[parameter.partition_dim] *= case.tp
            generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(source.encode()).digest()[:4], "little"))
            value = torch.randn(shape, generator=generator, dtype=torch.float64) * (0.1 if parameter.dim() > 1 else 0.05)
            if "norm" in name and name.endswith("weight"):
                value = 1 + value
            if split:
                value = value.chunk(case.tp, parameter.partition_dim)[ps.get_tensor_model_parallel_rank()]
            parameter.data.copy_(value)


def _batches(case: Case, seed: int, microbatches: int) -> Any:
    generator = torch.Generator().manual_seed(1000 * seed + ps.get_data_parallel_rank())
    for microbatch in range(microbatches):
        length = SEQUENCE // (1 + microbatch % 2) if case.variable else SEQUENCE
        words = torch.randint(0, VOCABULARY, (BATCH, length + 1), generator=generator)
        mask = (torch.rand((BATCH, length), generator=generator) < 0.8).float()
        yield words[:, :-1].contiguous(), words[:, 1:].contiguous(), mask


def _loss(case: Case, mask: torch.Tensor, output: torch.Tensor) -> Any:
    values = output.reshape(-1)
    if values.dtype != torch.float64:
        values = values.float()
    total, count = (values * mask.reshape(-1)).sum(), mask.sum().to(torch.int)
    if case.dp == 1 and not case.per_token:
        return total / count, {"lm loss": (total / count).detach()}
    return total, count, {"lm loss": torch.stack([total.detach(), count.to(total.dtype)])}


def _forward_step(case: Case, iterator: Any, model: Any, return_schedule_plan: bool = False) -> Any:
    chunk = get_attr_wrapped_model(model, "vp_stage")
    first = ps.is_pipeline_first_stage(ignore_virtual=chunk is None, vp_stage=chunk)
    last = ps.is_pipeline_last_stage(ignore_virtual=chunk is None, vp_stage=chunk)
    if case.delays:
        time.sleep(random.random() * 0.004)
    words = labels = mask = positions = None
    length = SEQUENCE
    if first or last or case.variable or case.mtp:
        words, labels, mask = next(iterator)
        length = words.shape[1]
        positions = torch.arange(length).expand(BATCH, length).contiguous()
    attention = torch.triu(torch.ones(1, 1, length, length, dtype=torch.bool), diagonal=1)
    run = model.build_schedule_plan if return_schedule_plan else model
    return run(words, positions, attention, labels=labels), partial(_loss, case, mask)


def _mean(losses: list[Any]) -> float | None:
    if not losses:
        return None
    values = torch.stack([each["lm loss"].double() for each in losses])
    return float(values.mean()) if values.dim() == 1 else float(values[:, 0].sum() / values[:, 1].sum())


class _Descent:
    """Megatron's optimizers want 32 bits."""

    def __init__(self, models: list[Any]) -> None:
        self._parameters = [parameter for model in models for parameter in model.parameters()]

    def zero_grad(self) -> None: ...

    @torch.no_grad()
    def step(self) -> tuple[bool, None, None]:
        for parameter in self._parameters:
            parameter -= 0.05 * parameter.main_grad
        return True, None, None


def data_parallel(case: Case, config: TransformerConfig, models: list[Any]) -> tuple[list[Any], Any]:
    for model in models:
        for parameter in model.parameters():
            tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
    if case.dtype == "bfloat16":
        models = [Float16Module(config, model) for model in models]
    ddp_config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=case.dtype != "float64",
        overlap_grad_reduce=case.overlap,
        use_distributed_optimizer=case.distributed_optimizer,
        overlap_param_gather=case.overlap and case.distributed_optimizer,
        bucket_size=case.bucket,
        align_param_gather=case.align,
        check_for_nan_in_grad=True,
    )
    models = [DistributedDataParallel(config, ddp_config, model) for model in models]
    config.finalize_model_grads_func = finalize_model_grads
    if case.scale:
        config.grad_scale_func = lambda loss: loss * case.scale

    def one_or_list(functions: list[Any]) -> Any:
        return functions if len(functions) > 1 else functions[0]

    if case.overlap:
        config.no_sync_func = one_or_list([model.no_sync for model in models])
    if case.align:
        config.grad_sync_func = one_or_list([model.start_grad_sync for model in models])
        config.param_sync_func = one_or_list([model.start_param_sync for model in models])
    if case.dtype == "float64":
        return models, _Descent(models)
    options = OptimizerConfig(
        optimizer="adam",
        lr=1e-3,
        adam_eps=1e-3,
        clip_grad=1.0,
        use_distributed_optimizer=case.distributed_optimizer,
        bf16=case.dtype == "bfloat16",
        params_dtype=getattr(torch, case.dtype),
        overlap_param_gather=case.overlap and case.distributed_optimizer,
    )
    return models, get_megatron_optimizer(options, models)


def place(case: Case, embedding_ranks: Any) -> TransformerConfig:
    """Creates Megatron's groups. Returns the configuration of the model."""
    ranks = {"get_embedding_ranks": embedding_ranks} if embedding_ranks is not None else {}
    ps.initialize_model_parallel(
        tensor_model_parallel_size=case.tp,
        pipeline_model_parallel_size=case.pp,
        virtual_pipeline_model_parallel_size=case.vp if case.vp > 1 else None,
        expert_model_parallel_size=case.ep,
        **ranks,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(123)
    torch.manual_seed(1)
    if case.dtype == "float64":
        torch.set_default_dtype(torch.float64)
    if case.fused:
        cpu_shim.fuse_weight_gradients()
    if case.grouped:
        cpu_shim.group_experts()
    return _config(case)


def step(case: Case, models: list[Any], seed: int, microbatches: int, forward_only: bool) -> float | None:
    """Runs a step as ``train_step`` of Megatron-LM does. Returns the mean loss on the last pipeline rank."""
    iterators = [_batches(case, seed, microbatches) for _ in models]
    forward_backward = get_forward_backward_func()  # the name of this module, which was imported before the installation
    losses = forward_backward(
        forward_step_func=partial(_forward_step, case),
        data_iterator=iterators if case.vp > 1 else iterators[0],
        model=models if case.vp > 1 else models[0],
        num_microbatches=microbatches,
        seq_length=SEQUENCE,
        micro_batch_size=BATCH,
        forward_only=forward_only,
    )
    return _mean(losses)


def train(case: Case) -> dict[str, Any]:
    """Installs the schedule of the case and trains, as a script of one's own does."""
    if not case.schedule:
        return run(case)
    installation = penstock.megatron.installation.install(case.schedule)
    if not case.wrapped:
        return run(case)
    return run(case, installation.model, installation.embedding_ranks)


def run(case: Case, wrap: Any = lambda provider: provider, embedding_ranks: Any = None) -> dict[str, Any]:
    """Runs this rank's part of the case. Returns losses, gradient norms, and gradients and parameters by global name."""
    config = place(case, embedding_ranks)
    inner = build(case, wrap(model_provider(case, config)), config)
    if not case.keep:
        fill(case, inner)
    models, optimizer = data_parallel(case, config, inner)
    if case.load:
        _load(case.load, inner)
        optimizer.reload_model_params()
    result: dict[str, Any] = {"losses": [], "evaluations": [], "norms": [], "gradients": []}
    place_of_tensors = (ps.get_tensor_model_parallel_rank(), ps.get_expert_model_parallel_rank())

    def named(value: Any) -> dict[Any, torch.Tensor]:
        return {
            (*place_of_tensors, global_name(model, name)): value(parameter).detach().clone()
            for model in inner
            for name, parameter in model.named_parameters()
        }

    for number in range(case.first_step, case.first_step + case.steps):
        for model in models:
            model.zero_grad_buffer()
        optimizer.zero_grad()
        result["losses"].append(step(case, models, number, case.microbatches, False))
        result["gradients"].append({} if case.distributed_optimizer else named(lambda parameter: parameter.main_grad))
        norm = optimizer.step()[1]
        result["norms"].append(None if norm is None else float(norm))
        if case.evaluate:
            result["evaluations"].append(evaluate(case, models, partial(step, case, models, 100 + number, case.evaluate, True)))
    if case.overlap and case.distributed_optimizer:
        for model in models:
            model.disable_forward_pre_hook(param_sync=True)
    result["parameters"] = named(lambda parameter: parameter)
    if case.save:
        _save(case.save, inner)
    return result


def evaluate(case: Case, models: list[Any], run: Any) -> float | None:
    gathers = case.overlap and case.distributed_optimizer
    for model in models:
        if gathers:
            model.disable_forward_pre_hook(param_sync=True)
        model.eval()
    with torch.no_grad():
        loss: float | None = run()
    for model in models:
        model.train()
        if gathers:
            model.enable_forward_pre_hook()
    return loss


def _sharded(models: list[Any]) -> dict[str, Any]:
    return {f"model{chunk}": model.sharded_state_dict() for chunk, model in enumerate(models)}


def _save(folder: str, models: list[Any]) -> None:
    from megatron.core import dist_checkpointing

    if dist.get_rank() == 0:
        pathlib.Path(folder).mkdir(parents=True)
    dist.barrier()
    dist_checkpointing.save(_sharded(models), folder)


def _load(folder: str, models: list[Any]) -> None:
    from megatron.core import dist_checkpointing

    states = dist_checkpointing.load(_sharded(models), folder)
    for chunk, model in enumerate(models):
        model.load_state_dict(states[f"model{chunk}"])
