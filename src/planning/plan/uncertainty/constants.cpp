#include "plan/uncertainty/constants.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/units.h"
#include "scenario/machine/machine_file.h"
#include "simulate/noise/jitter.h"

namespace penstock {
namespace {

constexpr double kMostError = 1;

// Errors of constants that were not fitted are how far fits of measured runs are from the defaults
// (docs/plan.md).
std::vector<UncertainConstant> Defaults() {
  using F = SpeedFactors;
  const std::string source = "default";
  return {
      {"flops_efficiency", 0.13, source, "the time of matmuls of the model's sizes", {&F::matmul}},
      {"bandwidth_efficiency",
       0.23,
       source,
       "the time of norms and activations, which memory bounds",
       {&F::memory}},
      {"link_efficiency", 0.39, source, "the time of all-reduces within a node", {&F::link}},
      {"network_efficiency", 0.26, source, "the time of all-reduces between nodes", {&F::network}},
      {"hidden_communication",
       0.15,
       source,
       "a trace of a layer that devices divide: what waits for messages",
       {&F::exposed_communication}},
      {"hidden_gradients",
       0.47,
       source,
       "a trace of the end of a step: what waits for gradients",
       {&F::exposed_gradients}},
      {"device_launch", 0.41, source, "the time of a small kernel", {&F::device_launch}},
      {"host_launch", 0.75, source, "the time of a step of a tiny model", {&F::host_launch}},
  };
}

UncertainConstant* Find(std::string_view name, std::vector<UncertainConstant>& constants) {
  const auto found = std::ranges::find(constants, name, &UncertainConstant::name);
  return found == constants.end() ? nullptr : &*found;
}

// Links have the efficiency of memory where only that is given (ReadSpeeds).
void JoinBandwidths(const Scenario& filled, std::vector<UncertainConstant>& constants) {
  if (!filled.bandwidth_efficiency) return;
  UncertainConstant& bandwidth = *Find("bandwidth_efficiency", constants);
  for (const auto& [name, given, factor] :
       {std::tuple("link_efficiency", filled.link_efficiency.has_value(), &SpeedFactors::link),
        {"network_efficiency", filled.network_efficiency.has_value(), &SpeedFactors::network}}) {
    if (given) continue;
    bandwidth.factors.push_back(factor);
    Find(name, constants)->factors.clear();
  }
}

Result<double> NumberOf(const std::string& text) {
  if (const auto number = ParseNumber(text)) return *number;
  return ParseSeconds(text);
}

// Returns the standard error as a part of what varies.
Result<double> RelativeError(const MachineConstant& constant) {
  const auto value = NumberOf(constant.value), error = NumberOf(constant.error);
  if (!value || !error || *error < 0) {
    return InvalidParameter("machine", ": the error {} of {} {} is no amount of it",
                            Quote(constant.error), constant.field, constant.value);
  }
  const bool is_hidden = constant.field.starts_with("hidden_");
  const double varies = is_hidden ? 1 - *value : *value;
  return varies > 0 ? std::min(*error / varies, kMostError) : 0;
}

// "link_efficiency=0.1"
Status SetGiven(const std::string& text, std::vector<UncertainConstant>& constants) {
  const std::size_t equals = std::min(text.find('='), text.size());
  std::string name = text.substr(0, equals);
  std::ranges::replace(name, '-', '_');
  UncertainConstant* const constant = Find(name, constants);
  if (constant == nullptr) {
    std::vector<std::string_view> names;
    for (const UncertainConstant& each : constants) names.push_back(each.name);
    return InvalidParameter(
        "uncertainty", "{}: {} is no constant that varies; {}", Quote(text), Quote(name),
        DidYouMean(name, names, fmt::format("there are {}", fmt::join(names, ", "))));
  }
  if (constant->factors.empty()) {
    return InvalidParameter(
        "uncertainty",
        "{}: `bandwidth_efficiency` determines it here; give the error of bandwidth_efficiency",
        Quote(text));
  }
  const Result<double> error =
      equals < text.size() ? ParseNumber(text.substr(equals + 1)) : Result<double>(-1);
  if (!error || *error < 0 || *error > kMostError) {
    return InvalidParameter("uncertainty", "{}: give a part of the value from 0 to {} ({}=0.1)",
                            Quote(text), kMostError, name);
  }
  constant->error = *error;
  constant->source = "given";
  return {};
}

}  // namespace

Result<std::vector<UncertainConstant>> UncertainConstants(const Scenario& scenario,
                                                          const std::vector<std::string>& given) {
  std::vector<UncertainConstant> constants = Defaults();
  Scenario filled = scenario;
  PENSTOCK_TRY(const std::vector<MachineConstant> fitted, ConstantsInEffect(scenario));
  PENSTOCK_TRY_STATUS(FillFromMachine(filled));
  for (const MachineConstant& each : fitted) {
    UncertainConstant* const constant = Find(each.field, constants);
    if (constant == nullptr || each.error.empty()) continue;
    PENSTOCK_TRY(constant->error, RelativeError(each));
    constant->source = *scenario.machine;
  }
  JoinBandwidths(filled, constants);
  for (const std::string& text : given) PENSTOCK_TRY_STATUS(SetGiven(text, constants));
  return constants;
}

SpeedFactors FactorsOf(const std::vector<UncertainConstant>& constants, std::uint64_t seed,
                       std::uint64_t sample) {
  SpeedFactors factors;
  for (std::size_t i = 0; i < constants.size(); ++i) {
    const double factor = Jitter(constants[i].error, seed, sample).Factor(i, 0);
    for (double SpeedFactors::*const each : constants[i].factors) factors.*each = factor;
  }
  return factors;
}

}  // namespace penstock
