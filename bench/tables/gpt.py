"""GPT and Llama by vTrain, NeMo, Aceso and Mist."""
from row import joined, nodes_of, unless_one

# What Aceso's logs call a device: its name, and what differs from the implementation.
ACESO_DEVICES = {"l4": ("l4", {"default:link_efficiency": 0.19, "default:network_efficiency": 1}),
                 "a10g": ("a10g", {"default:link_efficiency": 0.1, "default:network_efficiency": 1}),
                 "a100-sxm4-40gb": ("a100-40gb", {"default:network_efficiency": 0.5}),
                 "a100-sxm4-40gb-larger-model": ("a100-40gb", {"default:network_efficiency": 0.5})}


def sizes(row, sequence):
    """A GPT with learned positions, feed-forward layers of four times its width and a tied head, as Megatron-LM's are by default."""
    hidden = row.count("hidden")
    return {"model": "gpt", "layers": row.count("layers"), "dim": hidden, "hidden": 4 * hidden, "heads": row.count("heads"),
            "vocabulary": 51200, "sequence": row.count(sequence)}


def read_vtrain(row):
    """Ground truth of vTrain (github.com/VIA-Research/vTrain): GPT with a vocabulary of 51,200 on nodes of 8 A100 with 80 GB, by
    Megatron-DeepSpeed of 2022: fp16, 1F1B, distributed optimizer.

    Runs on several nodes recompute everything, also those with one stage: their sizes are those of Megatron-LM's Table 1 (Narayanan
    et al. 2021), and so is their throughput. Runs on one node recompute nothing: with recomputation, their FLOPs would exceed the
    devices' peak; they add up all collectives, as Megatron-LM did before it overlapped them. Nodes have 4 ports of 200 Gbit/s
    (vTrain's inter_node_bandwidth), half as many as NVIDIA's A100 nodes.
    """
    gpus, data, micro_batch = row.count("gpus"), row.count("data"), row.count("micro_batch")
    several = gpus > 8
    columns = sizes(row, "sequence") | {
        "device": "a100", "nodes": nodes_of(gpus, 8), "precision": "fp16", "default:implementation": "megatron",
        "default:network_efficiency": 0.5, "release": "2022-01" if several else "2021-01", "dropout": "true",
        "sequence_parallel": "false", "micro_batch_size": micro_batch,
        "microbatches": row.microbatches("global_batch", micro_batch, data), "data_parallel": data, "tensor": row.count("tensor"),
        "ranks": row.count("pipeline"), "step_time": row.positive("iteration_ms") / 1e3}
    if several:
        columns["recompute"] = "full"
    if data > 1:
        columns["zero"] = 1
    return columns


def read_nemo(row):
    """A sweep of NeMo: Llama 3 8B on 128 GPUs. Their type is not stated. The rows reach 228 TFLOP/s, and constants of A100s that
    other tables determine fit them, so A100s are assumed. These constants are those of `megatron`; what NeMo's layers fuse besides
    is given.
    """
    if row["model"] != "llama 8B":
        row.refuse("model", "only the sizes of llama 8B are known")
    gpus, micro_batch = row.count("gpus"), row.count("mbs")
    tensor, ranks, context = map(row.count, ("tp", "pp", "cp"))
    data = row.replicas("gpus", gpus, tensor * ranks * context)
    return {"model": "llama-3-8b", "default:device": "a100", "default:implementation": "megatron", "default:attention": "flash",
            "default:fused_loss": "true", "default:network_efficiency": 0.5, "nodes": nodes_of(gpus, 8), "sequence": row.count("seq"),
            "ranks": ranks, **unless_one(tensor=tensor, context=context), "data_parallel": data, **({"zero": 1} if data > 1 else {}),
            "micro_batch_size": micro_batch, "microbatches": row.microbatches("gbs", micro_batch, data),
            "step_time": row.positive("time_per_step_s")}


def read_aceso(row):
    """Logs of Aceso and Mist (github.com/Dazz993/Mist, results-ref): GPT on L4, A10G and A100 with stages of different sizes.

    They do not say which layers a stage has: both systems balance the stages, so that a stage's share of the layers is that of its
    devices. Nor do they say the vocabulary, which is Megatron-LM's.
    """
    device, defaults = ACESO_DEVICES.get(row["gpu"]) or row.refuse("gpu", "the device is unknown")
    stages, micro_batch = row.count("pp"), row.count("mbs")

    def by_stage(column, value_of):
        parts = row[column].split("/")
        if len(parts) != stages:
            row.refuse(column, f"{stages} stages are needed")
        return joined(map(value_of, parts))

    def recompute_of(part):
        return {"T": "full", "F": "none"}.get(part) or row.refuse("recompute", "T/F by stage is needed")

    columns = sizes(row, "seq") | defaults | {
        "device": device, "nodes": nodes_of(row.count("gpus"), 8), "precision": "fp16", "default:implementation": "megatron",
        "release": "2021-01", "dropout": "true", "sequence_parallel": "false", "ranks": stages,
        "stage_tensor": by_stage("tp_first_op", lambda part: row.count("tp_first_op", text=part)),
        "stage_data": by_stage("dp_first_op", lambda part: row.count("dp_first_op", text=part)),
        "stage_recompute": by_stage("recompute", recompute_of), "micro_batch_size": micro_batch,
        "microbatches": row.microbatches("gbs", micro_batch, 1), "step_time": row.positive("measured_iter_ms") / 1e3}
    if row["max_alloc_MB_seen"]:
        columns["peak_bytes"] = row.positive("max_alloc_MB_seen") * 2**20
    return columns
