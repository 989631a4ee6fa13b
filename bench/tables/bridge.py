"""NVIDIA's performance pages of Megatron-Bridge (docs/performance-summary of NVIDIA-NeMo/Megatron-Bridge).

What they do not print follows from its recipes: scripts/performance/configs at v0.2.0 to v0.5.0 and
src/megatron/bridge/perf_recipes.
"""
import re

from row import joined, nodes_of, unless_one

# By what pages print: the model, its layers, and the predictors that it trains with, if its sizes do not say so.
MODELS = {
    "DeepSeekV3": ("deepseek-v3", 61, 1), "Kimi_K2": ("kimi-k2", 61, 0), "Kimi K2": ("kimi-k2", 61, 0),
    "Qwen3_30B_a3B": ("qwen3-30b-a3b", 48, 0), "Qwen3_235B_a22B": ("qwen3-235b-a22b", 94, 0),
    "Qwen3_Next_80B_a3B": ("qwen3-next-80b-a3b", 48, 1), "GPT OSS 120B": ("gpt-oss-120b", 36, 0),
    "GPT OSS 20B": ("gpt-oss-20b", 24, 0), "Nemotron_3_Nano": ("nemotron-3-nano", 52, 0),
    "Nemotron_3_5_Lightning": ("nemotron-3.5-lightning", 52, 0), "Nemotron_3_Super": ("nemotron-3-super", 88, 2),
    "Nemotron_3_Ultra": ("nemotron-3-ultra", 108, 2), "NemotronH_56B": ("nemotron-h-56b", 118, 0),
    "LLAMA3_8B": ("llama-3-8b", 32, 0), "LLAMA3_70B": ("llama-3-70b", 80, 0), "LLAMA3.1_405B": ("llama-3-405b", 126, 0)}
WITHOUT_EXPERTS = ("llama-3-8b", "llama-3-70b", "llama-3-405b", "nemotron-h-56b")
PRECISIONS = {"BF16": "bf16", "NVFP4": "nvfp4", "MXFP8": "mxfp8", "FP8-MX": "mxfp8", "FP8-CS": "fp8", "FP8": "fp8"}
# Releases in which recipes changed.
FEB26, APR26, APR26_PATCH, JUN26 = "2026-02", "2026-04", "2026-04-01", "2026-06"


def first_of(text):
    """"FP8-CS (FP8-MX)" and "1 (2)" are two runs of which the first counts."""
    return text.split(" (")[0]


def recipe_of(model, device, precision, release, shards_weights, drops_tokens):
    """What the recipe of a run sets."""
    recipe = {}
    grace, h100 = device.startswith("gb"), device == "h100"
    graphs, dispatcher, overlapped = "none", "hybridep", False
    if model.startswith("nemotron"):
        graphs = "none" if h100 else "partial"
    elif model == "deepseek-v3":
        partial = device == "gb200" or device == "gb300" and precision == "bf16" or device == "b300" and release >= APR26_PATCH
        graphs = "partial" if partial else "none"
        recipe["recompute"] = "selective:mla_up_proj,mlp" if h100 else "selective:mla_up_proj"
        if release < FEB26:
            dispatcher = {"b200": "all-to-all", "h100": "deepep"}.get(device, dispatcher)
            overlapped = h100
    elif model == "kimi-k2":
        recipe["recompute"] = "selective:mla_up_proj"
        graphs = "partial" if grace else "none"
    elif model == "qwen3-30b-a3b":
        graphs = "none" if h100 else "partial"
        # The patch of February, 2026-02-01, has HybridEP.
        if device == "b200" and release <= FEB26 or h100 and release < FEB26:
            dispatcher, overlapped = "all-to-all", h100
    elif model == "qwen3-235b-a22b":
        graphs = "partial" if grace else "none"
        dispatcher = dispatcher if grace else "all-to-all"
        overlapped = h100
    elif model == "gpt-oss-120b":
        has_graphs = device in ("gb300", "b300")
        graphs = "partial" if has_graphs else "none"
        if not has_graphs:
            recipe["recompute"] = "selective:norm,act"
        is_new = release >= APR26 and device not in ("h100", "gb300")
        dispatcher = "hybridep" if is_new else "all-to-all"
        overlapped = is_new and device == "gb200"
    elif model == "llama-3-8b":
        graphs = "none" if h100 else "full"
        if h100:
            recipe["recompute"] = "block:5"
    elif model == "llama-3-70b" and shards_weights:
        # The layers whose activations are offloaded.
        offloaded = {"fp8": {"gb200": 40, "gb300": 20, "b200": 5}, "bf16": {"gb200": 20, "gb300": 30}}.get(precision, {})
        if device in offloaded:
            recipe["offloaded_layers"] = offloaded[device]
    if model in ("nemotron-3-super", "nemotron-3-ultra") and precision == "nvfp4":
        recipe["layers_at_end_in_bf16"] = 14
    # Models of which all matmuls of a step run under full graphs from June 2026 on.
    if (model in ("qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3", "gpt-oss-120b")
            and (grace or model == "qwen3-30b-a3b" and device == "b300") and precision == "mxfp8" and release >= JUN26):
        graphs, dispatcher, overlapped = "full", "hybridep", True
        recipe["fused_experts"] = "true"
        if model != "deepseek-v3" or device != "gb200":
            recipe["fp8_attention"] = "true"
        if model == "deepseek-v3" and device == "gb300":
            del recipe["recompute"]
    if drops_tokens:
        # Only one dispatcher drops tokens (apply_moe_token_drop), nothing overlaps its exchanges in 25.09 (run_script.py at v0.1.0rc4),
        # and with rows of fixed sizes whole layers of Qwen3 are graphs (cuda_graphs: true).
        recipe["drops_tokens"] = "true"
        dispatcher, overlapped = "all-to-all", False
        graphs = "full" if model.startswith("qwen3") and (grace or model == "qwen3-30b-a3b" and device == "b200") else "none"
    if graphs != "none":
        recipe["cuda_graphs"] = graphs
    if model not in WITHOUT_EXPERTS:
        recipe["dispatcher"] = dispatcher
        if overlapped:
            recipe["overlapped_experts"] = "true"
    return recipe


def layout_of(row, model, layers, count):
    """Which layers each of `count` stages has, if the stages do not divide them. Embedding and loss count as layers."""
    if layers % count == 0:
        return {}
    most = (layers + 2 + count - 1) // count
    counts = [most] * count
    if model in ("deepseek-v3", "kimi-k2"):
        # The last stage may have no layer but the loss (Et|(tt|)*30mL); then the first has fewer.
        counts[-1] = max(0, layers - most * (count - 1))
        counts[0] = layers - most * (count - 2) - counts[-1]
    else:
        counts[0] = most - 1
        counts[-1] = layers - most * (count - 2) - (most - 1)
    if min(counts) < 0:
        row.refuse("pp", f"{count} stages do not divide {layers} layers")
    return {"layout": joined(counts)}


def read_bridge(row):
    name, layers, predictors = MODELS.get(first_of(row["model"])) or row.refuse("model", "its sizes are unknown or cannot be expressed")
    device = row["system"].removeprefix("DGX-").lower()
    if not row["system"].startswith("DGX-"):
        row.refuse("system", "DGX-DEVICE is needed")
    printed = first_of(row["precision"])
    precision = PRECISIONS.get(printed) or row.refuse("precision", "BF16, FP8, FP8-CS, FP8-MX, MXFP8 or NVFP4 is needed")
    if printed == "FP8" and name == "deepseek-v3" and device == "h100":
        precision = "fp8-blockwise"  # elsewhere, FP8 alone is current scaling
    if not re.fullmatch(r"..\...(\...)?", row["release"]):
        row.refuse("release", "YY.MM or YY.MM.NN is needed")
    release = "20" + row["release"].replace(".", "-")  # "26.02.01" is 2026-02-01, which sorts as releases do
    gpus, micro_batch = row.count("gpus"), row.count("mbs")

    def ranks_in(column):
        return 1 if row[column] == "n/a" else row.count(column, text=first_of(row[column]))

    tensor, ranks, context, chunks, expert = map(ranks_in, ("tp", "pp", "cp", "vp", "ep"))
    data = row.replicas("gpus", gpus, tensor * ranks * context)
    fsdp = row.number("fsdp", first_of(row["fsdp"]))
    columns = {"model": name, "device": device, "nodes": nodes_of(gpus, 4 if device.startswith("gb") else 8), "precision": precision,
               "default:implementation": "transformer-engine", "release": release, "sequence": row.count("seq"),
               "micro_batch_size": micro_batch, "microbatches": row.microbatches("gbs", micro_batch, data), "ranks": ranks,
               **unless_one(tensor=tensor, context=context), "data_parallel": data}
    if row["task"] == "LoRA":
        columns["lora"] = columns["qkv_adapters"] = "true"  # cfg.peft.target_modules = ["linear_qkv"]
    if predictors:
        columns["predictors"] = 0 if "w/o MTP" in row["model"] else predictors
    if ranks > 1:
        columns |= unless_one(chunks=chunks) | layout_of(row, name, layers, ranks * chunks)
    if name not in WITHOUT_EXPERTS:
        columns |= unless_one(expert=expert)
        if tensor > 1:
            columns["expert_tensor"] = 1
    # States are sharded by the distributed optimizer, or with the weights by FSDP.
    if data * context > 1:
        columns["zero"] = 3 if fsdp > 0 else 1
    if 0 < fsdp < data:
        columns["zero_ranks"] = int(fsdp)
    columns |= recipe_of(name, device, precision, release, row["fsdp"] != "0", "tokendrop" in row["model"])
    columns["tokens_per_second_per_device"] = row.number("tok_s_gpu", first_of(row["tok_s_gpu"]))
    # The table has one best configuration per model, device, precision and release.
    columns["job"] = f"model {name}, device {device}, release {release}"
    return columns
