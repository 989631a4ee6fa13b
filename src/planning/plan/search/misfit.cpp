#include "plan/search/misfit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/units.h"

namespace penstock {
namespace {

constexpr int kMostTimes = 1024;     // as many devices
constexpr double kLeastPart = 0.01;  // of a rank's bytes that is named
constexpr int kMostZero = 3;

std::string Bytes(double bytes) { return FormatBytes(static_cast<std::int64_t>(bytes)); }

const PeakBytes& WorstRank(const TrainingPlan& plan) {
  return *std::ranges::max_element(plan.estimate.ranks, {}, &PeakBytes::total);
}

std::string KindsOf(const PeakBytes& rank) {
  std::vector<std::string> kinds;
  for (const auto& [name, bytes] : {std::pair("weights", rank.weights),
                                    {"gradients", rank.gradients},
                                    {"optimizer states", rank.optimizer},
                                    {"activations", rank.activations},
                                    {"gathered weights", rank.gathered},
                                    {"messages", rank.messages},
                                    {"workspace", rank.workspace},
                                    {"buffers", rank.others},
                                    {"fragmentation", rank.fragmentation},
                                    {"driver", rank.context}}) {
    if (bytes >= kLeastPart * rank.total())
      kinds.push_back(fmt::format("{} {}", name, Bytes(bytes)));
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

// Searches the nearest change of a question that fits.
class NearestFit {
 public:
  NearestFit(const PlanQuestion& question, double limit, const TrainingPlan& least)
      : question_(question), limit_(limit), least_(least) {}

  std::string Describe() const {
    std::string text;
    if (const auto change = NearestChange()) text += "; " + *change;
    const auto devices = MoreDevices();
    return text + "; " +
           devices.value_or(fmt::format("{} times as many devices do not", kMostTimes));
  }

 private:
  // Returns the plan that needs least with this scenario, if it fits.
  std::optional<TrainingPlan> Fit(const Scenario& scenario) const {
    PlanQuestion changed = question_;
    changed.scenario = scenario;
    return Fit(changed);
  }
  std::optional<TrainingPlan> Fit(const PlanQuestion& changed) const {
    auto plan = LeastMemoryPlan(changed);
    if (!plan || plan->bytes() > limit_) return std::nullopt;
    return plan;
  }

  // Returns the first change of what the user fixed that fits, in order of the time it costs.
  std::optional<std::string> NearestChange() const {
    for (const auto change :
         {&NearestFit::MoreRecompute, &NearestFit::MoreOffload, &NearestFit::SmallerMicrobatch,
          &NearestFit::MoreZero, &NearestFit::OtherDimension, &NearestFit::OtherFramework}) {
      if (auto text = (this->*change)()) return text;
    }
    return std::nullopt;
  }

  static std::string Fits(const std::string& change, const TrainingPlan& plan) {
    return fmt::format("{} fits with {}", change, Bytes(plan.bytes()));
  }

  std::optional<std::string> MoreRecompute() const {
    Scenario scenario = question_.scenario;
    if (!scenario.recompute) return std::nullopt;
    for (const char* form : {"selective:core_attn", "selective:norm,act", "full"}) {
      scenario.recompute = form;
      if (const auto plan = Fit(scenario)) return Fits(fmt::format("`recompute` {}", form), *plan);
    }
    return std::nullopt;
  }

  std::optional<std::string> MoreOffload() const {
    Scenario scenario = question_.scenario;
    if (!scenario.offloaded_layers) return std::nullopt;
    scenario.offloaded_layers.reset();
    const auto plan = Fit(scenario);
    if (!plan) return std::nullopt;
    return Fits(fmt::format("`offloaded_layers` {}", plan->division.offloaded_layers), *plan);
  }

  std::optional<std::string> SmallerMicrobatch() const {
    Scenario scenario = question_.scenario;
    if (!scenario.micro_batch_size) return std::nullopt;
    for (int size = *scenario.micro_batch_size / 2; size >= 1; size /= 2) {
      scenario.micro_batch_size = size;
      scenario.microbatches.reset();
      if (const auto plan = Fit(scenario)) {
        return Fits(fmt::format("`micro_batch_size` {}", size), *plan);
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> MoreZero() const {
    Scenario scenario = question_.scenario;
    const int most = std::min(kMostZero, question_.framework.most_zero);
    for (int zero = least_.division.zero + 1; zero <= most; ++zero) {
      scenario.zero = zero;
      if (const auto plan = Fit(scenario)) return Fits(fmt::format("`zero` {}", zero), *plan);
    }
    return std::nullopt;
  }

  // A framework that recomputes layers, or that has states in fewer bits or on the host.
  std::optional<std::string> OtherFramework() const {
    constexpr const char* kOther = "megatron";
    if (question_.framework.name.empty() || question_.framework.name == kOther) return std::nullopt;
    PlanQuestion changed = question_;
    changed.framework = *FindFramework(kOther);
    changed.schedules = changed.framework.usual;
    changed.scenario.implementation = changed.framework.implementations.front();
    if (const auto plan = Fit(changed)) return Fits(fmt::format("`for` {}", kOther), *plan);
    for (const Scenario& scenario : StateSavings(changed.scenario)) {
      changed.scenario = scenario;
      const auto plan = Fit(changed);
      if (!plan) continue;
      const std::string change =
          scenario.offloaded_states ? "`offloaded_states` 1" : "`optimizer_states` fp8";
      return Fits(fmt::format("`for` {} with {}", kOther, change), *plan);
    }
    return std::nullopt;
  }

  std::optional<std::string> OtherDimension() const {
    using Count = std::optional<int> Scenario::*;
    const std::tuple<const char*, Count, int JobDivision::*> dimensions[] = {
        {"tensor", &Scenario::tensor, &JobDivision::tensor},
        {"ranks", &Scenario::ranks, &JobDivision::pipeline},
        {"context", &Scenario::context, &JobDivision::context},
        {"data_parallel", &Scenario::data, &JobDivision::data},
        {"expert", &Scenario::expert, &JobDivision::expert},
        {"expert_tensor", &Scenario::expert_tensor, &JobDivision::expert_tensor}};
    for (const auto& [name, given, chosen] : dimensions) {
      Scenario scenario = question_.scenario;
      if (!(scenario.*given)) continue;
      (scenario.*given).reset();
      if (const auto plan = Fit(scenario)) {
        return Fits(fmt::format("`{}` {}", name, plan->division.*chosen), *plan);
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> MoreDevices() const {
    Scenario scenario = question_.scenario;
    const auto model = scenario.Load();
    if (!model) return std::nullopt;
    const Cluster& cluster = model->cluster;
    int times = 2;
    while (least_.bytes() / times > limit_ && times < kMostTimes) times *= 2;
    for (; times <= kMostTimes; times *= 2) {
      scenario.nodes = fmt::format("{}x{}", cluster.nodes * times, cluster.devices_per_node);
      const auto plan = Fit(scenario);
      if (!plan) continue;
      return fmt::format("{} times as many devices (`nodes` {}) fit with {}", times,
                         *scenario.nodes, Bytes(plan->bytes()));
    }
    return std::nullopt;
  }

  const PlanQuestion& question_;
  double limit_;
  const TrainingPlan& least_;
};

}  // namespace

Error MisfitOf(const PlanQuestion& question, double limit, const TrainingPlan& least) {
  const JobDivision& of = least.division;
  const PeakBytes& worst = WorstRank(least);
  const std::string offloaded =
      of.offloaded_layers > 0 ? fmt::format(", {} layers offloaded", of.offloaded_layers) : "";
  std::string message = fmt::format(
      ": {} devices with {} each do not fit the model: least is needed with tensor {}, pipeline "
      "{}, context {}, data {}, zero {} and recompute {}{}: {} on "
      "pipeline rank {}, {} too many ({})",
      least.estimate.devices, Bytes(limit), of.tensor, of.pipeline, of.context, of.data, of.zero,
      of.recompute, offloaded, Bytes(worst.total()), &worst - least.estimate.ranks.data(),
      Bytes(worst.total() - limit), KindsOf(worst));
  message += NearestFit(question, limit, least).Describe();
  return {ErrorCode::kInvalidArgument, std::move(message), "nodes"};
}

}  // namespace penstock
