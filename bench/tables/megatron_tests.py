"""Functional tests of Megatron-LM (tests/functional_tests): golden iteration times and peak memory of the last rank.

What the table lacks is known of the tests (megatron_tests.txt); what these lack has Megatron-LM's default.
"""
import functools
import pathlib
import re

from row import Row, joined, unless_one

# Tokens of the tokenizers that the tests use.
TOKENIZERS = {"GPT2BPETokenizer": 50257, "GPTSentencePieceTokenizer": 256000, "TikTokenizer": 131072}
# Rows of the busiest rank's experts over the mean: the routers of these tests are hardly trained. The one constant here that is
# fitted to measured peaks.
IMBALANCE = 1.1
DISPATCHERS = {"flex": "deepep", "alltoall": "all-to-all"}


@functools.cache
def known_tests():
    """By test: its arguments, and the platforms whose values are older than November 2025."""
    tests, arguments = {}, {}
    for line in (pathlib.Path(__file__).parent / "megatron_tests.txt").read_text().splitlines():
        if line.startswith("  "):
            name, _, platforms = line.strip().partition(" ")
            tests[name] = arguments, platforms.split(",")
        elif not line.startswith("#"):
            arguments = dict(word.split("=", 1) for word in line.split(" "))
    return tests


def devices_of(row):
    """The device, nodes and their number of devices."""
    test, platform = row["test"], row["platform"]
    if "release" in test:
        row.refuse("test", "the number of GPUs of release tests is not public")
    if "gb200" in platform:
        return ("gb200", "1x4", 4) if "_1node" in test else ("gb200", "2x4", 8)
    return ("h100" if "h100" in platform else "a100"), "1x8", 8


def check_task(row):
    """Refuses runs that are more than the training of one decoder."""
    if row["test"].startswith(("mimo/", "t5/", "bert/", "multimodal")):
        row.refuse("test", "only decoders can be expressed")
    if "_gdn" in row["test"] or "flextron" in row["test"]:
        row.refuse("test", "gated delta nets and routers of widths cannot be expressed")
    if row.is_true("perform-rl-step"):
        row.refuse("perform-rl-step", "the memory of inference cannot be expressed")


def vocabulary_of(row, tensor):
    """The tokens of the vocabulary, padded so that ranks divide it."""
    tokens = TOKENIZERS.get(row["tokenizer-type"], TOKENIZERS["GPT2BPETokenizer"])
    if row["vocab-size"]:
        tokens = row.count("vocab-size") + (row["tokenizer-type"] == "NullTokenizer")  # the end of a document
    unit = row.count("make-vocab-size-divisible-by", 128) * tensor
    return (tokens + unit - 1) // unit * unit


def pattern_of(row):
    """One letter per layer. '|' separates stages, and '/' the layers of predictors."""
    return re.sub('[|"]', "", (row["hybrid-layer-pattern"] or row["hybrid-override-pattern"]).split("/")[0])


def attention_of(row):
    heads = row.count("num-attention-heads")
    if row.is_true("multi-latent-attention"):
        ranks = [row.count(name, usual) for name, usual in (("q-lora-rank", 0), ("kv-lora-rank", 32), ("qk-head-dim", 128),
                                                            ("qk-pos-emb-head-dim", 64), ("v-head-dim", 128))]
        return {"heads": heads, "latent": joined(ranks)}
    kv_heads = row.count("num-query-groups", heads)
    return ({"heads": heads} | ({"kv_heads": kv_heads} if kv_heads != heads else {})
            | ({"head_dim": row.count("kv-channels")} if row["kv-channels"] else {}))


def dense_layers_of(row):
    """"([0]*3+[1]*11)" has 3 dense layers."""
    text = row["moe-layer-freq"]
    if text in ("", "1"):
        return 0
    begin = re.match(r"\(\[0\]\*(\d+)\+\[1\]\*", text)
    return int(begin[1]) if begin else row.refuse("moe-layer-freq", "only dense layers before all others can be expressed")


def experts_of(row, hidden):
    if not row["num-experts"]:
        return {}
    width, dense_layers = row.count("moe-ffn-hidden-size", hidden), dense_layers_of(row)
    columns = {"experts": row.count("num-experts"), "top_k": row.count("moe-router-topk", 2), "expert_hidden": width}
    if dense_layers and not pattern_of(row):
        columns["dense_layers"] = dense_layers
    if not row.is_true("moe-grouped-gemm"):
        columns["grouped_experts"] = "false"
    shared = row.count("moe-shared-expert-intermediate-size", 0)
    return columns | ({"shared_experts": max(1, shared // width), "shared_hidden": shared} if shared else {})


def model_of(row, tensor):
    """The model by its sizes. `tensor` ranks divide its vocabulary."""
    dim, sequence, gated, pattern = row.count("hidden-size"), row.count("seq-length"), row.is_true("swiglu"), pattern_of(row)
    hidden = row.count("ffn-hidden-size", 8 * dim // 3 // 64 * 64 if gated else 4 * dim)
    columns = {"model": "decoder", "dim": dim, "hidden": hidden, "sequence": sequence, "vocabulary": vocabulary_of(row, tensor),
               "gated": "true" if gated else "false", "tied": "false" if row.is_true("untie-embeddings-and-output-weights") else "true"}
    if pattern:
        head_dim = row.count("mamba-head-dim", 64)
        columns |= {"pattern": pattern, "mamba": joined((row.count("mamba-num-heads", 2 * dim // head_dim), head_dim,
                                                         row.count("mamba-state-dim", 128), row.count("mamba-num-groups", 8)))}
    else:
        columns["layers"] = row.count("num-layers")
        if row["position-embedding-type"] in ("", "learned_absolute"):
            columns["positions"] = row.count("max-position-embeddings", sequence)
    if not row.is_true("disable-bias-linear"):
        columns["linear_biases"] = "true"
    if row.is_true("qk-layernorm"):
        columns["qk_norm"] = "true"
    if row["mtp-num-layers"]:
        columns["predictors"] = row.count("mtp-num-layers")
    return columns | attention_of(row) | experts_of(row, hidden)


def stages_of_layout(layout):
    """"Et*3|(tt|)*29,m|L" has 31 stages."""
    while re.search(r"[*(]", layout):
        expanded = re.sub(r"(?:\(([^()]*)\)|([EtmL|]))\*(\d+)|\(([^()]*)\)",
                          lambda found: found[4] if found[4] is not None else (found[1] or found[2] or "") * int(found[3]), layout)
        if expanded == layout:
            return None
        layout = expanded
    return layout.count("|") + 1 if re.fullmatch("[EtmL|, ]*", layout) else None


def stages_of(row, ranks):
    """Which layers the stages of these pipeline ranks have."""
    name = "pipeline-model-parallel-layout"
    if layout := re.sub(r"""[\\"']""", "", row[name]):  # without the quotes of its shell
        stages = stages_of_layout(layout)
        if not stages or stages % ranks:
            row.refuse(name, f"stages that are a multiple of {ranks} ranks are needed")
        return {"layout": layout} | unless_one(chunks=stages // ranks)
    if ranks == 1:
        return {}
    layers = len(pattern_of(row)) or row.count("num-layers")
    if row["decoder-last-pipeline-num-layers"]:
        last = row.count("decoder-last-pipeline-num-layers")
        # Megatron-LM requires equal ranks in between, so that otherwise the first one differs, too.
        first_differs = (layers - last) % (ranks - 1) != 0
        between, others = (ranks - 2, layers - 2 * last) if first_differs else (ranks - 1, layers - last)
        if between < 1 or others < 1 or others % between:
            row.refuse("decoder-last-pipeline-num-layers", "the other ranks do not divide the other layers")
        return {"layout": joined([last if first_differs else others // between] + [others // between] * (ranks - 2) + [last])}
    chunks, per_stage = row.count("num-virtual-stages-per-pipeline-rank", 1), "num-layers-per-virtual-pipeline-stage"
    if row[per_stage] and not row["num-virtual-stages-per-pipeline-rank"]:
        if layers % (ranks * row.count(per_stage)):
            row.refuse(per_stage, f"{ranks} ranks do not divide {layers} layers so")
        chunks = layers // ranks // row.count(per_stage)
    if chunks == 1:
        return {}
    group = row.count("microbatch-group-size-per-virtual-pipeline-stage", ranks)
    return {"chunks": chunks} | ({"group": group} if group != ranks else {})


def ranks_of(row, tensor, ranks, context, data):
    columns = {"ranks": ranks, "data_parallel": data, **unless_one(tensor=tensor, context=context)}
    if tensor > 1 and not row.is_true("sequence-parallel"):
        columns["sequence_parallel"] = "false"
    # How many replicas share states.
    replicas = data * context
    if replicas > 1 and (row.is_true("use-megatron-fsdp") or row.is_true("use-torch-fsdp2")):
        columns["zero"] = 3
    elif replicas > 1 and row.is_true("use-distributed-optimizer"):
        columns["zero"] = 1
        instances = row.count("num-distributed-optimizer-instances", 1)
        if 1 < instances < replicas and replicas % instances == 0:
            columns["zero_ranks"] = replicas // instances
    if not row["num-experts"]:
        return columns
    expert, expert_tensor = row.count("expert-model-parallel-size", 1), row.count("expert-tensor-parallel-size", tensor)
    if expert > 1:
        columns |= {"expert": expert, "expert_imbalance": IMBALANCE}
    if expert_tensor != tensor:
        columns["expert_tensor"] = expert_tensor
    if row.is_true("overlap-moe-expert-parallel-comm"):
        columns["overlapped_experts"] = "true"
    dispatcher = DISPATCHERS.get(row["moe-token-dispatcher-type"], "all-gather")
    return columns | {"dispatcher": row["moe-flex-dispatcher-backend"] or dispatcher if dispatcher == "deepep" else dispatcher}


def modules_of(text):
    """"[layernorm mlp]" is "layernorm,mlp"."""
    return re.sub(r'[\[\]"]', "", text).replace(" ", ",")


def recompute_of(row):
    columns, granularity = {}, row["recompute-granularity"]
    if row.is_true("fine-grained-activation-offloading"):
        columns["offload_modules"] = modules_of(row["offload-modules"])
    if granularity == "full":
        method = "block" if row["recompute-method"] == "block" else "full"
        columns["recompute"] = f"{method}:{row.count('recompute-num-layers', 1)}"
    elif granularity == "selective":
        modules = modules_of(row["recompute-modules"])
        columns["recompute"] = f"selective:{modules}" if modules else "selective"
    elif granularity:
        row.refuse("recompute-granularity", "full or selective is needed")
    return columns


def implementation_of(row, is_old):
    is_local, backend = row["transformer-impl"] == "local", row["attention-backend"]
    bf16 = row.is_true("bf16") and not row.is_true("fp16")
    columns = {"default:implementation": "megatron" if is_local else "transformer-engine",
               "precision": "fp8" if row["fp8-format"] else "bf16" if bf16 else "fp16"}
    if bf16 and not row.is_true("grad-reduce-in-bf16"):  # accumulate_allreduce_grads_in_fp32 of training.py
        columns["fp32_gradients"] = "true"
    if is_old:
        columns["release"] = "2024-10" if row["platform"].startswith("lts") else "2025-10"
    if is_local or backend == "local":
        columns["attention"] = "unfused"
    elif backend in ("flash", "fused", "unfused"):  # "auto" is left to the implementation
        columns["attention"] = backend
    for argument, name in (("deterministic-mode", "deterministic"), ("cross-entropy-loss-fusion", "fused_loss")):
        if row.is_true(argument):
            columns[name] = "true"
    if row["cuda-graph-impl"]:
        columns["cuda_graphs"] = "partial"
    if not row.is_true("no-create-attention-mask-in-dataloader"):
        columns["attention_mask"] = "true"
    if not row["hidden-dropout"] or row.number("hidden-dropout") > 0:
        columns["dropout"] = "true"
    return columns


def measured_of(row):
    """The device's memory is what the test measures."""
    names = {"mem_max_bytes": "peak_bytes", "iter_s_median": "step_time"}
    columns = {column: row.positive(name) for name, column in names.items() if row[name]}
    return columns | {"peak_of": "last"} if columns else row.refuse("mem_max_bytes", "the row has neither this nor iter_s_median")


def read_megatron_tests(row):
    arguments, old_platforms = known_tests().get(row["test"], ({}, []))
    is_old = row["platform"].startswith("lts_dgxa100") or row["platform"] in old_platforms
    row = Row(arguments | {column: cell for column, cell in row.items() if cell})
    check_task(row)
    device, nodes, count = devices_of(row)
    tensor, ranks, context = (row.count(f"{kind}-parallel-size", 1) for kind in ("tensor-model", "pipeline-model", "context"))
    data, micro_batch = row.replicas("test", count, tensor * ranks * context), row.count("micro-batch-size")
    microbatches = row.microbatches("global-batch-size", micro_batch, data)
    columns = {"device": device, "nodes": nodes, "micro_batch_size": micro_batch, "microbatches": microbatches,
               **model_of(row, tensor), **stages_of(row, ranks), **ranks_of(row, tensor, ranks, context, data),
               **recompute_of(row), **implementation_of(row, is_old), **measured_of(row)}
    if row.is_true("defer-embedding-wgrad-compute") and microbatches > 1:
        columns["deferred_head"] = min(row.count("wgrad-deferral-limit", microbatches), microbatches - 1)
    return columns
