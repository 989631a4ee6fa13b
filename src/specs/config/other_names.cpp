#include "config/other_names.h"

#include <algorithm>
#include <cctype>

#include "base/text/fields.h"

namespace penstock {
namespace {

// What we call it; either may be empty.
struct OurName {
  std::string_view parameter;  // may be followed by the value that the name means
  std::string_view key;        // of a training configuration: "parallel.tensor="
};

struct OtherNames {
  OurName ours;
  std::string_view names;  // in lower case, with '-' for '_' and '.'
};

// A name in several rows means the first one that a command has: 'plan' has a global batch,
// 'simulate' has microbatches.
constexpr OtherNames kOtherNames[] = {
    {{"nodes", ""}, "world-size gpus num-gpus ngpus n-gpus gpu-count num-devices"},
    {{"ranks", "pipeline.ranks="},
     "pp pp-size pp-degree pipeline-model-parallel-size pipeline-parallel-size "
     "pipeline-parallel-degree pipeline-parallel pipeline-size num-stages pipeline-stages "
     "world-size gpus num-gpus ngpus n-gpus gpu-count num-devices nproc-per-node "
     "pipe-parallel-size "
     "pipeline-model-parallel num-ranks"},
    {{"chunks", "pipeline.chunks="},
     "vpp vp vpp-size vp-size virtual-pipeline-model-parallel-size virtual-pipeline-size "
     "num-virtual-stages num-virtual-stages-per-pipeline-rank "
     "virtual-pipeline-parallel-size virtual-pipeline-parallel-degree num-model-chunks "
     "model-chunks interleave virtual-stages num-virtual-stages-per-rank stages-per-rank"},
    {{"tensor", "parallel.tensor="},
     "tp tp-size tp-degree tensor-model-parallel-size tensor-parallel-size tensor-parallel-degree "
     "tensor-parallel model-parallel-size model-parallel mp mp-size tensor-model-parallel"},
    {{"data_parallel", "parallel.data="},
     "dp dp-size dp-degree data-parallel-size data-parallel-degree data-parallel "
     "data-parallel-replicate-degree data-parallel-shard-degree dp-replicate dp-shard "
     "num-replicas num-data-parallel"},
    {{"expert", "parallel.expert="},
     "ep ep-size ep-degree expert-model-parallel-size expert-parallel-size expert-parallel-degree "
     "expert-parallel moe-expert-parallel-size"},
    {{"context", "parallel.context="},
     "cp cp-size cp-degree context-parallel-size context-parallel-degree context-parallel "
     "ulysses-size ulysses-sequence-parallel-size"},
    {{"sequence_parallel", "parallel.sequence_parallel="},
     "sp enable-sequence-parallel use-sequence-parallel"},
    {{"sequence", "model.sequence="},
     "seq seq-len seq-length sequence-length max-seq-len max-seq-length max-sequence-length "
     "context-length max-length max-model-len block-size max-position-embeddings ctx n-ctx"},
    {{"expert_tensor", "parallel.expert_tensor="},
     "etp etp-size expert-tensor-parallel-size expert-tensor-parallel-degree"},
    {{"global_batch", ""},
     "global-batch-size gbs train-batch-size train-global-batch-size batch global-bs"},
    {{"microbatches", "pipeline.microbatches="},
     "num-microbatches n-microbatches num-micro-batches micro-batches nmb mb "
     "gradient-accumulation-steps grad-accumulation-steps accumulate-grad-batches grad-accum "
     "grad-accum-steps global-batch global-batch-size gbs train-batch-size train-global-batch-size "
     "batches "
     "num-mb microbatch-count pipeline-chunks"},
    {{"micro_batch_size", "batch="},
     "mbs micro-batch microbatch-size train-micro-batch-size-per-gpu per-device-train-batch-size "
     "pipeline-parallel-microbatch-size local-batch-size batch-size bs mb-size"},
    {{"device", ""}, "hardware hw gpu gpu-type gpu-name accelerator device-type device-name chip"},
    {{"nodes", ""}, "nnodes num-nodes n-nodes cluster topology"},
    {{"model", "model.name="}, "model-name hf-model pretrained-model model-name-or-path hf-path"},
    {{"schedule", "pipeline.schedule="},
     "pipeline-schedule pipeline-parallel-schedule pp-schedule schedule-name "
     "pipeline-schedule-name"},
    {{"layers", "model.layers="}, "num-layers n-layers n-layer num-hidden-layers"},
    {{"dim", "model.dim="}, "hidden-size d-model n-embd hidden-dim"},
    {{"hidden", "model.hidden="}, "ffn-hidden-size intermediate-size ffn-dim n-inner"},
    {{"vocabulary", "model.vocabulary="}, "vocab-size padded-vocab-size vocab"},
    {{"heads", "model.heads="}, "num-attention-heads n-heads n-head num-heads"},
    {{"kv_heads", "model.kv_heads="}, "num-query-groups num-key-value-heads n-kv-heads"},
    {{"head_dim", ""}, "kv-channels head-size"},
    {{"experts", "model.experts="}, "num-experts num-local-experts n-routed-experts"},
    {{"top_k", "model.top_k="}, "moe-router-topk num-experts-per-tok moe-top-k"},
    {{"expert_hidden", "model.expert_hidden="},
     "moe-ffn-hidden-size moe-intermediate-size expert-ffn-hidden-size"},
    {{"predictors", ""}, "mtp-num-layers num-nextn-predict-layers"},
    {{"for", ""}, "framework target-framework"},
    {{"implementation", ""}, "transformer-impl"},
    {{"dispatcher", ""}, "moe-token-dispatcher-type"},
    {{"context_exchange", "parallel.context_exchange="},
     "cp-comm-type context-parallel-rotate-method"},
    {{"recompute", ""},
     "recompute-granularity recomputation recompute-activations recompute-modules "
     "activation-checkpointing activation-checkpoint activation-recompute "
     "gradient-checkpointing ac ac-mode"},
    {{"pass recompute", "recompute.hold=least"},
     "recompute recomputation recompute-granularity recompute-activations recompute-method "
     "recompute-num-layers activation-checkpointing activation-checkpoint activation-recompute "
     "gradient-checkpointing checkpoint-activations ac ac-mode"},
    {{"precision", "precision="},
     "dtype torch-dtype mixed-precision param-dtype mixed-precision-param"},
    {{"precision fp8", ""}, "fp8 fp8-format fp8-hybrid use-fp8 float8"},
    {{"precision bf16", "precision=bf16"}, "bf16 bfloat16 use-bf16"},
    {{"zero", "parallel.zero="}, "zero-stage zero-optimization-stage sharding-stage"},
    {{"zero 1", "parallel.zero=1"}, "use-distributed-optimizer distributed-optimizer"},
    {{"zero 3", "parallel.zero=3"},
     "fsdp use-fsdp use-torch-fsdp2 data-parallel-sharding-strategy"},
    {{"steps", "steps="},
     "train-iters max-steps num-steps training-steps num-train-steps iterations iters max-iters"},
    {{"cost", ""}, "fwd-time bwd-time forward-time backward-time f-time b-time w-time latency-fwd"},
    {{"comm", ""}, "comm-time p2p-time p2p-latency comm-latency comm-cost t-comm"},
    {{"memory_limit", "max_memory="}, "max-mem max-memory memory-budget mem-limit gpu-memory"},
    {{"", "optimizer.lr="}, "lr learning-rate max-lr peak-lr"},
    {{"", "name="}, "run-name"},
    {{"resume", "resume="}, "load resume-from-checkpoint resume-from load-path"},
    {{"checkpoint_every", "checkpoint.every="}, "save-interval save-steps checkpoint-interval"},
};

struct Lacking {
  std::string_view instead;
  std::string_view names;  // as above
};

constexpr Lacking kLackingInTraining[] = {
    {"it trains in f32 or bf16 (precision), which need no scaling of the loss",
     "fp16 float16 half loss-scale initial-loss-scale min-loss-scale loss-scale-window "
     "grad-scaler"},
    {"it trains in f32 or bf16 (precision)",
     "fp8 fp8-format fp8-recipe fp8-hybrid use-fp8 float8 enable-fp8-linear fp4 mxfp8 nvfp4"},
    {"it trains all weights, without adapters",
     "lora lora-rank lora-r lora-alpha lora-dropout peft use-peft qlora adapter"},
    {"it has no quantized weights",
     "load-in-4bit load-in-8bit quantization quantize quantization-config bnb-4bit"},
    {"stages are always captured and compiled", "torch-compile compile-model enable-compile"},
    {"only activations are offloaded, by OFFLOAD actions of a schedule (pipeline.csv)",
     "cpu-offload offload-optimizer optimizer-cpu-offload offload-param zero-offload "
     "enable-cpu-offload"},
    {"runs/NAME/metrics.jsonl has every step",
     "log-interval logging-steps log-freq logging-interval log-every steps-per-print"},
    {"runs/NAME/metrics.jsonl has the figures, and 'python -m penstock.tensorboard' writes event "
     "files",
     "wandb wandb-project wandb-name enable-wandb report-to tensorboard-dir enable-tensorboard"},
    {"the length of a run is in steps (steps) or seconds (seconds)",
     "epochs num-epochs num-train-epochs max-epochs train-samples"},
    {"the learning rate rises for optimizer.warmup steps and follows a cosine to optimizer.lr_end",
     "lr-decay-style lr-scheduler lr-scheduler-type lr-decay-iters scheduler"},
};

// Returns "pipeline-parallel-degree" of "--parallelism.pipeline_parallel_degree".
std::string PlainName(std::string_view name) {
  name = name.substr(std::min(name.size(), name.find_first_not_of('-')));
  name = name.substr(name.rfind('.') + 1);
  std::string plain;
  for (const char c : name) {
    plain += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

bool IsAmong(std::string_view name, std::string_view names) {
  const std::vector<std::string_view> all = Words(names);
  return std::ranges::find(all, name) != all.end();
}

}  // namespace

std::optional<std::string> OurNameOf(std::string_view name,
                                     const std::function<bool(std::string_view)>& has) {
  const std::string plain = PlainName(name);
  bool is_known = false;
  for (const OtherNames& each : kOtherNames) {
    if (!IsAmong(plain, each.names)) continue;
    is_known = true;
    const auto& [parameter, key] = each.ours;
    if (!parameter.empty() && has(parameter.substr(0, parameter.find(' ')))) {
      return std::string(parameter);
    }
    if (!key.empty() && has(key)) return std::string(key);
  }
  return is_known ? std::optional<std::string>("") : std::nullopt;
}

std::string_view InPlaceOf(std::string_view name) {
  const std::string plain = PlainName(name);
  for (const Lacking& each : kLackingInTraining) {
    if (IsAmong(plain, each.names)) return each.instead;
  }
  return "";
}

}  // namespace penstock
