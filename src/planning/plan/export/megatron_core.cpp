#include "plan/export/megatron_core.h"

#include "cost_model/layer_work.h"

namespace penstock {
namespace {

// Returns what of the architecture its options do not express, or null.
const char* ForeignPart(const ModelShape& shape) {
  const std::pair<const char*, bool> parts[] = {
      {"layers of several kinds", !shape.pattern.empty()},
      {"gated delta nets", shape.delta.has_value()},
      {"windows of attention", shape.window > 0},
      {"gates of queries", shape.query_gate},
      {"biases of the projection after attention", shape.output_bias},
      {"learned sinks of attention", shape.sinks},
      {"norms after the parts of a block", shape.norms_outputs},
      {"attention without positions", shape.has_no_positions},
      {"a gate of shared experts", shape.experts && shape.experts->shared_gate},
      {"experts with latent inputs", shape.experts && shape.experts->latent > 0},
      {"experts with biases", shape.experts && shape.experts->biases}};
  for (const auto& [name, has] : parts) {
    if (has) return name;
  }
  return nullptr;
}

}  // namespace

Status CheckOwnSchedule(const PlanJob& job, std::string_view framework) {
  if (job.algorithm != "1f1b" && job.algorithm != "interleaved") {
    return InvalidParameter("schedule", "{}: {} runs 1f1b and interleaved", job.algorithm,
                            framework);
  }
  for (const auto& [name, value] : job.scenario.schedules.front().options) {
    if (name == "chunks" || (name == "slices" && value == "1")) continue;
    return InvalidParameter(name, "{}: {} has no such schedule", value, framework);
  }
  // core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving.
  const JobDivision& division = job.division;
  if (job.chunks > 1 && division.microbatches % division.pipeline != 0) {
    return InvalidParameter("microbatches",
                            "{}: {} interleaves whole multiples of the {} pipeline ranks",
                            division.microbatches, framework, division.pipeline);
  }
  return {};
}

Status CheckMegatronCore(const PlanJob& job, std::string_view framework) {
  if (const char* const part = ForeignPart(job.shape())) {
    return InvalidParameter("model", "{}: its {} are not expressed for {}", job.shape().name, part,
                            framework);
  }
  PENSTOCK_TRY_STATUS(CheckMegatron(job.divided()));
  const JobDivision& division = job.division;
  // "Make sure EP and CP aren't used with this option enabled" (initialize_config.py).
  if (SitesDivideReplicas(job) && division.context * division.expert > 1) {
    return InvalidParameter("across_sites",
                            "data: {} cannot make the replicas outermost with context or expert "
                            "ranks; give pipeline",
                            framework);
  }
  // arguments.py: "seq-length should be a multiple of 2 * context-parallel-size".
  const std::int64_t sequence = job.model.batch.sequence;
  if (division.context > 1 && sequence % (2 * division.context) != 0) {
    return InvalidParameter("sequence", "{}: {} needs a multiple of twice the {} context ranks",
                            sequence, framework, division.context);
  }
  return {};
}

MegatronRecompute MegatronRecomputeOf(const PlanJob& job) {
  using enum Recompute::Method;
  const Recompute& recompute = job.model.recompute;
  switch (recompute.method) {
    case kNone:
      return {};
    case kUniform:
      return {.granularity = "full", .method = "uniform", .layers = recompute.layers};
    case kBlock:
      return {.granularity = "full", .method = "block", .layers = recompute.layers};
    case kSelective:
      break;
  }
  constexpr std::pair<int, const char*> kModules[] = {
      {kCoreAttention, "core_attn"},     {kNorm, "layernorm"},
      {kLatentUp, "mla_up_proj"},        {kFeedForward, "mlp"},
      {kActivation, "moe_act"},          {kExpertsModule, "moe"},
      {kSharedExperts, "shared_experts"}};
  MegatronRecompute chosen{.granularity = "selective"};
  for (const auto& [module, name] : kModules) {
    if ((recompute.modules & module) != 0) chosen.modules.emplace_back(name);
  }
  return chosen;
}

MegatronAssumptions AssumptionsOf(const PlanJob& job) {
  const Microbatch& batch = job.model.batch;
  const Implementation& implementation = batch.profile.get();
  MegatronAssumptions assumed;
  assumed.overlaps_tensor = implementation.overlaps_tensor != nullptr &&
                            implementation.overlaps_tensor(batch) &&
                            job.scenario.hidden_communication.value_or(1) > 0;
  assumed.reduces_in_fp32 = batch.profile.sums_in_fp32();
  assumed.gathers_quantized =
      IsQuantized(batch.precision) && implementation.quantized_gather_bytes > 0;
  assumed.fuses_permutation = implementation.quantizes && job.shape().experts.has_value();
  return assumed;
}

std::string_view ContextExchangeOf(const PlanJob& job) {
  const std::string how = job.scenario.context_exchange.value_or("ring");
  return how == "ulysses" ? "a2a" : how == "all-gather" ? "all_gather" : "p2p";
}

}  // namespace penstock
