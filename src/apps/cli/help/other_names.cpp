#include "cli/help/other_names.h"

#include <algorithm>
#include <cctype>

#include "base/text/fields.h"

namespace penstock {
namespace {

struct OtherNames {
  std::string_view option;  // may be followed by the value that the names mean
  std::string_view key;     // of a training configuration, empty if there is none
  std::string_view names;   // in lower case, with '-' for '_' and '.'
};

constexpr OtherNames kOtherNames[] = {
    {"--ranks", "pipeline.ranks=",
     "pp pp-size pp-degree pipeline-model-parallel-size pipeline-parallel-size "
     "pipeline-parallel-degree pipeline-parallel pipeline-size num-stages pipeline-stages "
     "world-size gpus num-gpus ngpus n-gpus gpu-count num-devices nproc-per-node "
     "pipe-parallel-size "
     "pipeline-model-parallel num-ranks"},
    {"--chunks", "pipeline.chunks=",
     "vpp vp vpp-size vp-size virtual-pipeline-model-parallel-size virtual-pipeline-size "
     "num-virtual-stages num-virtual-stages-per-pipeline-rank "
     "virtual-pipeline-parallel-size virtual-pipeline-parallel-degree num-model-chunks "
     "model-chunks interleave virtual-stages num-virtual-stages-per-rank stages-per-rank"},
    {"--tensor", "",
     "tp tp-size tp-degree tensor-model-parallel-size tensor-parallel-size tensor-parallel-degree "
     "tensor-parallel model-parallel-size mp mp-size tensor-model-parallel"},
    {"--data-parallel", "parallel.data=",
     "dp dp-size dp-degree data-parallel-size data-parallel-degree data-parallel "
     "data-parallel-replicate-degree data-parallel-shard-degree dp-replicate dp-shard "
     "num-replicas"},
    {"--expert", "parallel.expert=",
     "ep ep-size ep-degree expert-model-parallel-size expert-parallel-size expert-parallel-degree "
     "expert-parallel expert-tensor-parallel-size"},
    {"--sequence", "model.sequence=",
     "seq seq-len seq-length sequence-length max-seq-len max-seq-length max-sequence-length "
     "context-length max-length max-model-len block-size max-position-embeddings ctx n-ctx"},
    {"--microbatches", "pipeline.microbatches=",
     "num-microbatches n-microbatches num-micro-batches micro-batches nmb mb "
     "gradient-accumulation-steps grad-accumulation-steps accumulate-grad-batches grad-accum "
     "grad-accum-steps global-batch-size gbs train-batch-size train-global-batch-size batches "
     "num-mb microbatch-count pipeline-chunks"},
    {"--micro-batch-size", "batch=",
     "mbs micro-batch microbatch-size train-micro-batch-size-per-gpu per-device-train-batch-size "
     "pipeline-parallel-microbatch-size local-batch-size batch-size bs mb-size"},
    {"--device", "", "hardware hw gpu gpu-type gpu-name accelerator device-type device-name chip"},
    {"--nodes", "", "nnodes num-nodes n-nodes cluster topology"},
    {"--model", "model.name=", "model-name hf-model pretrained-model model-name-or-path hf-path"},
    {"--schedule", "pipeline.schedule=",
     "pipeline-schedule pipeline-parallel-schedule pp-schedule schedule-name "
     "pipeline-schedule-name"},
    {"--pass recompute", "recompute.hold=least",
     "recompute recomputation recompute-granularity recompute-activations recompute-method "
     "recompute-num-layers activation-checkpointing activation-checkpoint activation-recompute "
     "gradient-checkpointing checkpoint-activations ac ac-mode"},
    {"--precision",
     "precision=", "dtype torch-dtype mixed-precision param-dtype mixed-precision-param"},
    {"--precision fp8", "", "fp8 fp8-format fp8-hybrid use-fp8 float8"},
    {"--precision bf16", "precision=bf16", "bf16 bfloat16 use-bf16"},
    {"--zero", "parallel.zero=", "zero-stage zero-optimization-stage sharding-stage"},
    {"--zero 1", "parallel.zero=1", "use-distributed-optimizer distributed-optimizer"},
    {"--zero 3", "parallel.zero=3",
     "fsdp use-fsdp use-torch-fsdp2 data-parallel-sharding-strategy"},
    {"--steps", "steps=",
     "train-iters max-steps num-steps training-steps num-train-steps iterations iters max-iters"},
    {"--cost", "", "fwd-time bwd-time forward-time backward-time f-time b-time w-time latency-fwd"},
    {"--comm", "", "comm-time p2p-time p2p-latency comm-latency comm-cost t-comm"},
    {"--memory-limit", "memory_limit=", "max-mem max-memory memory-budget mem-limit gpu-memory"},
    {"", "optimizer.lr=", "lr learning-rate max-lr peak-lr"},
    {"", "name=", "run-name"},
    {"--resume", "resume=", "load resume-from-checkpoint resume-from load-path"},
    {"--checkpoint-every", "checkpoint.every=", "save-interval save-steps checkpoint-interval"},
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

bool Has(const CLI::App& app, const std::string& option) {
  return app.get_option_no_throw(option) != nullptr;
}

bool TakesKeys(const CLI::App& app) { return Has(app, "KEY=VALUE"); }

}  // namespace

std::optional<std::string> OurNameOf(std::string_view name, const CLI::App& app) {
  const std::string plain = PlainName(name);
  const auto found = std::ranges::find_if(kOtherNames, [&](const OtherNames& each) {
    const std::vector<std::string_view> names = Words(each.names);
    return std::ranges::find(names, plain) != names.end();
  });
  if (found == std::ranges::end(kOtherNames)) return std::nullopt;
  const std::string option(found->option.substr(0, found->option.find(' ')));
  if (!option.empty() && Has(app, option)) return std::string(found->option);
  return TakesKeys(app) ? std::string(found->key) : "";
}

}  // namespace penstock
