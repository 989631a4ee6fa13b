#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/shell_word.h"
#include "plan/export/framework_texts.h"
#include "plan/export/megatron_core.h"
#include "plan/export/stage_text.h"
#include "plan/search/framework.h"
#include "schedule/catalog.h"
#include "schedule/pairs.h"

namespace penstock {
namespace {

constexpr std::string_view kMegatronLm = "Megatron-LM";

// The options of megatron/training/arguments.py, and the ones that it derives from
// TransformerConfig.
class MegatronOptions {
 public:
  explicit MegatronOptions(const PlanJob& job) : job_(job) {}

  std::string Lines() {
    AddParallelism();
    AddBatch();
    AddModel();
    AddPrecision();
    AddRecompute();
    AddKernels();
    return std::move(lines_);
  }

 private:
  void Flag(std::string_view name) { lines_ += fmt::format("  --{}\n", name); }
  template <class Value>
  void Add(std::string_view name, const Value& value) {
    lines_ += fmt::format("  --{} {}\n", name, ShellWord(fmt::format("{}", value)));
  }
  void AddList(std::string_view name, const std::vector<std::string>& values) {
    lines_ += fmt::format("  --{} {}\n", name, fmt::join(values, " "));
  }

  void AddParallelism() {
    const JobDivision& division = job_.division;
    Add("tensor-model-parallel-size", division.tensor);
    Add("pipeline-model-parallel-size", division.pipeline);
    if (division.pipeline > 1) {
      Add("pipeline-model-parallel-layout", MegatronLayoutOf(job_.stages));
    }
    if (SitesDivideReplicas(job_)) Flag("use-tp-pp-dp-mapping");
    Add("context-parallel-size", division.context);
    if (division.context > 1) Add("cp-comm-type", ContextExchangeOf(job_));
    if (division.tensor > 1 && job_.sequence_parallel()) Flag("sequence-parallel");
    if (assumed_.overlaps_tensor) Flag("tp-comm-overlap");
    if (job_.shape().experts) {
      Add("expert-model-parallel-size", division.expert);
      Add("expert-tensor-parallel-size", job_.division.experts_tensor());
    }
    AddReplicas();
    AddStates();
  }

  void AddReplicas() {
    const JobDivision& division = job_.division;
    if (job_.division.copies() == 1) return;
    Flag("overlap-grad-reduce");
    if (division.zero == 0) return;
    Flag("use-distributed-optimizer");
    Flag("overlap-param-gather");
    const int sharing = job_.model.zero_ranks;
    if (sharing > 0 && sharing < job_.division.copies()) {
      Add("num-distributed-optimizer-instances", job_.division.copies() / sharing);
    }
  }

  // Both need the optimizer of TransformerEngine that takes its states' dtypes.
  void AddStates() {
    const Profile& profile = job_.model.batch.profile;
    const bool is_small = profile.moments != Moments::kFp32;
    if (!is_small && profile.offloaded_states == 0) return;
    if (job_.division.copies() == 1 || job_.division.zero == 0) Flag("use-distributed-optimizer");
    Flag("use-precision-aware-optimizer");
    if (is_small) {
      const std::string_view dtype = kMomentNames[static_cast<std::size_t>(profile.moments)];
      Add("exp-avg-dtype", dtype);
      Add("exp-avg-sq-dtype", dtype);
    }
    if (profile.offloaded_states == 0) return;
    Flag("optimizer-cpu-offload");
    Add("optimizer-offload-fraction", profile.offloaded_states);
  }

  void AddBatch() {
    Add("micro-batch-size", job_.division.micro_batch);
    Add("global-batch-size", job_.global_batch());
    Add("seq-length", job_.model.batch.sequence);
  }

  void AddModel() {
    const ModelShape& shape = job_.shape();
    Add("num-layers", shape.layers);
    Add("hidden-size", shape.dim);
    Add("ffn-hidden-size", shape.hidden);
    Add("num-attention-heads", shape.heads);
    Add("vocab-size", shape.vocabulary);
    AddAttention();
    if (shape.architecture == Architecture::kGpt2 || shape.positions > 0) {
      Add("position-embedding-type", "learned_absolute");
      Add("max-position-embeddings", shape.positions);
    } else {
      Add("position-embedding-type", "rope");
      Add("max-position-embeddings", job_.model.batch.sequence);
    }
    if (shape.architecture == Architecture::kDecoder) {
      Add("normalization", "RMSNorm");
      if (shape.gated) Flag("swiglu");
      if (!job_.model.batch.profile.linear_biases) Flag("disable-bias-linear");
      if (shape.qkv_biases) Flag("add-qkv-bias");
    }
    if (!shape.tied) Flag("untie-embeddings-and-output-weights");
    if (shape.predictors > 0) Add("mtp-num-layers", shape.predictors);
    if (shape.experts) AddExperts(*shape.experts);
  }

  void AddAttention() {
    const ModelShape& shape = job_.shape();
    // The norms of latent vectors are called norms of queries and keys here.
    if (shape.qk_norm || shape.latent) Flag("qk-layernorm");
    if (!shape.latent) {
      if (shape.kv_heads != shape.heads) {
        Flag("group-query-attention");
        Add("num-query-groups", shape.kv_heads);
      }
      Add("kv-channels", shape.head_dim);
      return;
    }
    const LatentShape& latent = *shape.latent;
    Flag("multi-latent-attention");
    if (latent.query_rank > 0) Add("q-lora-rank", latent.query_rank);
    Add("kv-lora-rank", latent.kv_rank);
    Add("qk-head-dim", latent.plain_dim);
    Add("qk-pos-emb-head-dim", latent.rotary_dim);
    Add("v-head-dim", latent.value_dim);
  }

  // A list of one number per layer, as an expression of Python.
  std::string LayersWithExperts() const {
    const ModelShape& shape = job_.shape();
    if (shape.experts->every == 1) {
      return fmt::format("([0]*{}+[1]*{})", shape.experts->dense_layers,
                         shape.layers - shape.experts->dense_layers);
    }
    std::vector<int> has(static_cast<std::size_t>(shape.layers));
    for (std::size_t i = 0; i < has.size(); ++i) {
      has[i] = shape.has_experts(static_cast<std::int64_t>(i)) ? 1 : 0;
    }
    return fmt::format("([{}])", fmt::join(has, ","));
  }

  void AddExperts(const ExpertShape& experts) {
    Add("num-experts", experts.experts);
    Add("moe-router-topk", experts.top_k);
    Add("moe-ffn-hidden-size", experts.hidden);
    if (experts.dense_layers > 0 || experts.every > 1) Add("moe-layer-freq", LayersWithExperts());
    if (experts.shared > 0) Add("moe-shared-expert-intermediate-size", experts.shared_width());
    if (job_.model.batch.profile.grouped_experts) Flag("moe-grouped-gemm");
    if (assumed_.fuses_permutation) Flag("moe-permute-fusion");
    switch (experts.balance) {
      case ExpertShape::Balance::kNone:
        Add("moe-router-load-balancing-type", "none");
        break;
      case ExpertShape::Balance::kLoss:
        Add("moe-router-load-balancing-type", "aux_loss");
        Add("moe-aux-loss-coeff", "1e-3");
        break;
      case ExpertShape::Balance::kBias:
        Add("moe-router-load-balancing-type", "none");
        Add("moe-router-score-function", "sigmoid");
        Flag("moe-router-enable-expert-bias");
        break;
    }
    // Without it, the weights of the chosen experts are scaled to a sum of 1.
    if (!experts.normalizes) Flag("moe-router-pre-softmax");
    AddDispatcher();
  }

  void AddDispatcher() {
    constexpr std::string_view kType = "moe-token-dispatcher-type",
                               kBackend = "moe-flex-dispatcher-backend";
    switch (job_.model.batch.profile.dispatcher) {
      case Dispatcher::kAllGather:
        return Add(kType, "allgather");
      case Dispatcher::kAllToAll:
        return Add(kType, "alltoall");
      case Dispatcher::kDeepEp:
        Add(kType, "flex");
        return Add(kBackend, "deepep");
      case Dispatcher::kHybridEp:
        Add(kType, "flex");
        return Add(kBackend, "hybridep");
    }
  }

  void AddPrecision() {
    const Precision precision = job_.model.batch.precision;
    if (precision == Precision::kFp32) return;
    Flag(precision == Precision::kFp16 ? "fp16" : "bf16");
    // Megatron-LM sums gradients of bf16 in fp32 unless it is told, and gradients of fp16 in fp16.
    const bool is_bf16 = precision != Precision::kFp16;
    if (is_bf16 && !assumed_.reduces_in_fp32) Flag("grad-reduce-in-bf16");
    if (!IsQuantized(precision)) return;
    if (assumed_.gathers_quantized && job_.division.zero > 0) {
      Flag(precision == Precision::kNvfp4 ? "fp4-param-gather" : "fp8-param-gather");
      if (precision == Precision::kMxfp8) Flag("reuse-grad-buf-for-mxfp8-param-ag");
    }
    if (precision == Precision::kNvfp4) {
      Add("fp4-format", "e2m1");
    } else {
      const bool is_tensorwise = precision == Precision::kFp8;
      const bool is_blockwise = precision == Precision::kFp8Blockwise;
      Add("fp8-format", is_tensorwise || is_blockwise ? "hybrid" : "e4m3");
      Add("fp8-recipe", is_tensorwise ? "tensorwise" : is_blockwise ? "blockwise" : "mxfp8");
    }
    if (const int layers = job_.model.batch.profile.layers_at_end_in_bf16; layers > 0) {
      Flag("first-last-layers-bf16");
      Add("num-layers-at-start-in-bf16", 0);
      Add("num-layers-at-end-in-bf16", layers);
    }
  }

  void AddRecompute() {
    const MegatronRecompute recompute = MegatronRecomputeOf(job_);
    if (recompute.granularity.empty()) return;
    Add("recompute-granularity", recompute.granularity);
    if (!recompute.modules.empty()) return AddList("recompute-modules", recompute.modules);
    Add("recompute-method", recompute.method);
    Add("recompute-num-layers", recompute.layers);
  }

  void AddKernels() {
    const Profile& profile = job_.model.batch.profile;
    const bool is_local = job_.scenario.implementation == "megatron";
    Add("transformer-impl", is_local ? "local" : "transformer_engine");
    if (profile.attention != AttentionKernel::kAuto) {
      Add("attention-backend", kAttentionNames[static_cast<std::size_t>(profile.attention)]);
    }
    if (profile.fused_loss) Flag("cross-entropy-loss-fusion");
    if (profile.deterministic) Flag("deterministic-mode");
    if (!profile.attention_mask) Flag("no-create-attention-mask-in-dataloader");
    if (profile.overlapped_experts) Flag("overlap-moe-expert-parallel-comm");
    if (profile.graphs == CudaGraphs::kPartial) AddGraphs();
    if (profile.dropout) return;
    Add("attention-dropout", 0);
    Add("hidden-dropout", 0);
  }

  // Graphs have all parts of a layer but the experts, whose numbers of tokens change.
  void AddGraphs() {
    Add("cuda-graph-impl", "transformer_engine");
    AddList("cuda-graph-scope", {"attn", "moe_router", "moe_preprocess"});
  }

  const PlanJob& job_;
  MegatronAssumptions assumed_ = AssumptionsOf(job_);
  std::string lines_;
};

// Refuses what `python -m penstock.megatron` does not run.
Status CheckSchedule(const PlanJob& job) {
  PENSTOCK_TRY(const Framework megatron, FindFramework("megatron"));
  if (std::ranges::find(megatron.schedules, job.algorithm) == megatron.schedules.end()) {
    return InvalidParameter("schedule", "{}: {} does not run it", job.algorithm, kMegatronLm);
  }
  if (HasPairs(job.schedule) && job.scenario.overlap != "sum") {
    return InvalidParameter("overlap", "{}: {} runs the parts of a pair one after the other",
                            job.scenario.overlap.value_or("max"), kMegatronLm);
  }
  return CheckMegatron(job.divided());
}

// Returns how penstock.megatron finds the schedule: its name, if the name and the sizes of the run
// determine the order of the actions, or else its file.
std::string ScheduleWord(const PlanJob& job, const std::string& csv) {
  ScheduleParams params;
  params.ranks = job.division.pipeline;
  params.chunks = job.chunks;
  params.microbatches = job.division.microbatches;
  const Result<Schedule> named = Generate(job.algorithm, params);
  const bool is_same =
      named && named->placement == job.schedule.placement && named->lanes == job.schedule.lanes;
  return is_same ? job.algorithm : ShellWord(csv);
}

}  // namespace

Result<std::string> MegatronText(const PlanJob& job, const std::string& csv) {
  std::string launcher;
  if (!CheckOwnSchedule(job, kMegatronLm)) {
    PENSTOCK_TRY_STATUS(CheckSchedule(job));
    launcher = fmt::format("-m penstock.megatron {} ", ScheduleWord(job, csv));
  }
  PENSTOCK_TRY_STATUS(CheckMegatronCore(job, kMegatronLm));
  PENSTOCK_TRY_STATUS(RefuseOtherSettings(
      job, kMegatronLm,
      {"context_exchange", "attention", "dispatcher", "dropout", "deterministic", "fused_loss",
       "overlapped_experts", "linear_biases", "grouped_experts", "attention_mask",
       "layers_at_end_in_bf16", "zero_ranks", "cuda_graphs", "fp32_gradients", "optimizer_states",
       "offloaded_states"}));
  if (job.model.batch.profile.graphs == CudaGraphs::kFull) {
    return InvalidParameter("cuda_graphs",
                            "full: {} needs experts of a fixed size for it; give "
                            "partial",
                            kMegatronLm);
  }
  const Cluster& cluster = job.model.cluster;
  return fmt::format(
      "# A plan as arguments of Megatron-LM, for bash:\n"
      "#   . megatron.sh\n"
      "#   torchrun --nnodes {} --nproc-per-node {} ... {}pretrain_gpt.py \\\n"
      "#     \"${{MEGATRON_ARGS[@]}}\" ...\n"
      "# Yours to add is what changes neither time nor memory: data, tokenizer, learning rate, "
      "the\n"
      "# base of rotary positions, groups and factors of the router.\n"
      "MEGATRON_ARGS=(\n{})\n",
      cluster.nodes, cluster.devices_per_node, launcher, MegatronOptions(job).Lines());
}

}  // namespace penstock
