#include "plan/search/division.h"

#include <algorithm>
#include <optional>

#include "cost_model/device.h"
#include "plan/search/framework.h"

namespace penstock {
namespace {

constexpr int kMostMicroBatch = 16;
constexpr std::int64_t kLeastTokens = 4096;  // of a rank's share of a sample's context

// Returns 1, 2, 4, ... up to `most`, or only the value that is given.
std::vector<int> PowersOfTwo(const std::optional<int>& given, std::int64_t most) {
  if (given) return {*given};
  std::vector<int> powers;
  for (int power = 1; power <= most; power *= 2) powers.push_back(power);
  return powers;
}

std::vector<int> Divisors(const std::optional<int>& given, std::int64_t number, std::int64_t most) {
  if (given) return {*given};
  std::vector<int> divisors;
  for (int divisor = 1; divisor <= std::min<std::int64_t>(number, most); ++divisor) {
    if (number % divisor == 0) divisors.push_back(divisor);
  }
  return divisors;
}

std::int64_t Least(std::int64_t bound, int most) {
  return most > 0 ? std::min<std::int64_t>(bound, most) : bound;
}

std::string_view AcrossName(AcrossSites across) {
  return kAcrossSitesNames[static_cast<std::size_t>(across)];
}

class Enumeration {
 public:
  explicit Enumeration(const DivisionQuestion& question)
      : question_(question), fixed_(*question.scenario) {}

  std::vector<JobDivision> Take() {
    const std::int64_t most_tensor =
        Least(std::min<std::int64_t>(question_.linked_devices, question_.shape.heads),
              question_.framework->most_tensor);
    const std::int64_t most_context =
        Least(question_.sequence / kLeastTokens, question_.framework->most_context);
    for (const int tensor : PowersOfTwo(fixed_.tensor, most_tensor)) {
      for (const int context :
           PowersOfTwo(fixed_.context, std::max<std::int64_t>(most_context, 1))) {
        AddExchanges(tensor, context);
      }
    }
    return std::move(divisions_);
  }

 private:
  void AddExchanges(int tensor, int context) {
    if (context == 1) return AddPipelines(tensor, context, {});
    for (const ContextExchange exchange : question_.exchanges) {
      AddPipelines(tensor, context, exchange);
    }
  }

  void AddPipelines(int tensor, int context, ContextExchange exchange) {
    const int stage_ranks = tensor * context;
    if (question_.devices % stage_ranks != 0) return;
    const int rest = question_.devices / stage_ranks;
    for (const int pipeline : Divisors(fixed_.ranks, rest, question_.shape.layers)) {
      if (rest % pipeline != 0) continue;
      const int data = rest / pipeline;
      if (fixed_.data && *fixed_.data != data) continue;
      if (question_.global_batch % data != 0) continue;
      JobDivision division;
      division.tensor = tensor;
      division.context = context;
      division.context_exchange = exchange;
      division.pipeline = pipeline;
      division.data = data;
      AddExperts(division);
    }
  }

  void AddExperts(JobDivision division) {
    if (!question_.shape.experts) {
      division.expert = fixed_.expert.value_or(1);
      division.expert_tensor = fixed_.expert_tensor.value_or(0);
      return AddSites(division);
    }
    const int ranks = division.tensor * division.context * division.data;
    const std::int64_t experts = question_.shape.experts->experts;
    std::vector<int> divides = {1};
    if (division.tensor > 1) divides.push_back(division.tensor);
    if (fixed_.expert_tensor) divides = {*fixed_.expert_tensor};
    for (const int expert : PowersOfTwo(fixed_.expert, std::min<std::int64_t>(ranks, experts))) {
      for (const int each : divides) {
        if (experts % expert != 0 || ranks % (expert * each) != 0) continue;
        division.expert = expert;
        division.expert_tensor = each;
        AddSites(division);
      }
    }
  }

  // Sites have some ranks of the pipeline each, or some replicas of all of it.
  void AddSites(JobDivision division) {
    const int sites = fixed_.sites.value_or(1);
    if (sites == 1) return AddStates(division);
    const auto allows = [&](AcrossSites across) {
      return !fixed_.across_sites || *fixed_.across_sites == AcrossName(across);
    };
    if (division.pipeline % sites == 0 && allows(AcrossSites::kPipeline)) {
      division.across_sites = AcrossSites::kPipeline;
      AddStates(division);
    }
    if (division.data % sites == 0 && allows(AcrossSites::kData)) {
      division.across_sites = AcrossSites::kData;
      AddStates(division);
    }
  }

  // Without `zero` 1, replicas need more memory and as much time.
  void AddStates(JobDivision division) {
    if (fixed_.zero) {
      division.zero = *fixed_.zero;
      return AddBatches(division);
    }
    const int divide = question_.shards_over_context ? division.copies() : division.data;
    if (divide == 1) return AddBatches(division);
    for (const int zero : question_.framework->zeros) {
      division.zero = zero;
      AddBatches(division);
    }
  }

  void AddBatches(JobDivision division) {
    const std::int64_t samples = question_.global_batch / division.data;
    for (const int size : Divisors(fixed_.micro_batch_size, samples, kMostMicroBatch)) {
      if (samples % size != 0) continue;
      if (fixed_.microbatches && samples / size != *fixed_.microbatches) continue;
      division.micro_batch = size;
      division.microbatches = static_cast<int>(samples / size);
      AddPrecisions(division);
    }
  }

  void AddPrecisions(JobDivision division) {
    if (question_.precisions.empty()) return AddGathers(division);
    for (const Precision precision : question_.precisions) {
      division.precision = precision;
      AddGathers(division);
    }
  }

  // What W gathers again needs no memory in between.
  void AddGathers(JobDivision division) {
    division.gather_again = fixed_.gather_again.value_or(false);
    AddRecompute(division);
    const bool gathers_inputs = division.tensor > 1 && question_.sequence_parallel;
    const bool gathers_keys =
        division.context > 1 && division.context_exchange == ContextExchange::kAllGather;
    const bool gathers = question_.may_gather_again && (gathers_inputs || gathers_keys);
    if (fixed_.gather_again || !gathers) return;
    division.gather_again = true;
    AddRecompute(division);
  }

  void AddRecompute(JobDivision division) {
    for (const std::string& form : RecomputeForms(division)) {
      division.recompute = form;
      AddOffloads(division);
    }
  }

  // What is computed again need not be moved, so that each helps without the other.
  void AddOffloads(JobDivision division) {
    division.offloaded_layers = fixed_.offloaded_layers.value_or(0);
    AddExpertOptions(division);
    if (fixed_.offloaded_layers || fixed_.offload_modules || division.recompute != "none") return;
    const int layers = static_cast<int>(question_.shape.layers);
    for (const int offloaded : {layers / 2, layers}) {
      division.offloaded_layers = offloaded;
      if (offloaded > 0) AddExpertOptions(division);
    }
  }

  // Graphs and overlap need schedules of the framework's own (framework_limits.cpp).
  void AddExpertOptions(JobDivision division) {
    division.graphs_layers = fixed_.cuda_graphs == "partial";
    division.overlaps_experts = fixed_.overlapped_experts.value_or(false);
    divisions_.push_back(division);
    const KernelOptions& options = question_.framework->options;
    if (!question_.shape.experts) return;
    if (options.graphs_layers && !fixed_.cuda_graphs) {
      division.graphs_layers = true;
      divisions_.push_back(division);
    }
    if (options.overlaps_experts && !fixed_.overlapped_experts && division.expert > 1) {
      division.overlaps_experts = true;
      divisions_.push_back(division);
    }
  }

  // What costs little to compute again, and what frees most.
  static std::vector<const char*> ModulesOf(const ModelShape& shape) {
    if (!shape.experts) return {"core_attn", "norm", "mlp", "norm,mlp"};
    if (!shape.latent) return {"core_attn", "norm", "act", "norm,act"};
    return {"core_attn", "norm", "mla_up_proj", "norm,mla_up_proj", "norm,act,mla_up_proj"};
  }

  // Blocks are parts of the layers of a rank with one stage.
  std::vector<std::string> RecomputeForms(const JobDivision& division) const {
    if (fixed_.recompute) return {*fixed_.recompute};
    std::vector<std::string> forms = {"none"};
    for (const char* modules : ModulesOf(question_.shape)) {
      forms.push_back(std::string("selective:") + modules);
    }
    const std::int64_t layers = question_.shape.layers / division.pipeline;
    for (const int quarter : {1, 2, 3}) {
      std::string form = "block:" + std::to_string(layers * quarter / 4);
      if (layers * quarter >= 4 && form != forms.back()) forms.push_back(std::move(form));
    }
    forms.emplace_back("full");
    return forms;
  }

  const DivisionQuestion& question_;
  const Scenario& fixed_;
  std::vector<JobDivision> divisions_;
};

}  // namespace

std::vector<JobDivision> JobDivisions(const DivisionQuestion& question) {
  return Enumeration(question).Take();
}

namespace {

// Megatron-Bridge, flex_dispatcher_backend.py: DeepEP runs on NVIDIA's devices except for those of
// an NVL72, HybridEP on all of them.
bool Runs(const Device& device, Dispatcher dispatcher) {
  switch (dispatcher) {
    case Dispatcher::kAllGather:
    case Dispatcher::kAllToAll:
      return true;
    case Dispatcher::kDeepEp:
      return device.vendor == "nvidia" && device.linked_devices == 0;
    case Dispatcher::kHybridEp:
      break;
  }
  return device.vendor == "nvidia";
}

}  // namespace

std::vector<JobDivision> KernelVariants(const DivisionQuestion& question,
                                        const JobDivision& division) {
  const std::vector<Dispatcher>& dispatchers = question.framework->options.dispatchers;
  if (dispatchers.empty() || division.expert == 1 || question.scenario->dispatcher) {
    return {division};
  }
  std::vector<JobDivision> variants;
  for (const Dispatcher dispatcher : dispatchers) {
    if (!Runs(*question.device, dispatcher)) continue;
    variants.push_back(division);
    variants.back().dispatcher = dispatcher;
  }
  return variants;
}

void SetDivision(const JobDivision& division, Scenario& scenario) {
  scenario.tensor = division.tensor;
  scenario.context = division.context;
  if (division.context > 1 && division.context_exchange != ContextExchange::kRing) {
    scenario.context_exchange =
        std::string(kContextExchangeNames[static_cast<std::size_t>(division.context_exchange)]);
  }
  scenario.ranks = division.pipeline;
  scenario.data = division.data;
  scenario.expert = division.expert;
  if (division.expert_tensor > 0) scenario.expert_tensor = division.expert_tensor;
  if (scenario.sites) {
    scenario.across_sites = AcrossName(division.across_sites);
  }
  scenario.zero = division.zero;
  scenario.micro_batch_size = division.micro_batch;
  scenario.microbatches = division.microbatches;
  scenario.recompute = division.recompute;
  if (division.gather_again) scenario.gather_again = true;
  if (division.offloaded_layers > 0) scenario.offloaded_layers = division.offloaded_layers;
  if (division.dispatcher) {
    scenario.dispatcher = kDispatcherNames[static_cast<std::size_t>(*division.dispatcher)];
  }
  if (division.graphs_layers) scenario.cuda_graphs = "partial";
  if (division.overlaps_experts) scenario.overlapped_experts = true;
  if (division.precision) {
    scenario.precision = kPrecisionNames[static_cast<std::size_t>(*division.precision)];
  }
}

}  // namespace penstock
