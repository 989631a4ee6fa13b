#include "calibrate/fit/constants.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "base/units.h"

namespace penstock {
namespace {

using NumberMember = std::optional<double> Scenario::*;
using TextMember = std::optional<std::string> Scenario::*;

// Times are texts with their unit.
std::string TimeText(double seconds) { return fmt::format("{:.6g}us", seconds * 1e6); }

bool IsLogarithmic(const ScenarioField& field) { return field.fit->least > 0; }

// The value that the scenario's implementation has of a constant.
double DefaultOf(const ScenarioField& field, const Scenario& scenario) {
  const Result<ModelOnCluster> model = scenario.Load();
  if (!model) return field.fit->usual;
  const Speeds& speeds = model->cluster.speeds;
  const std::pair<std::string_view, double> values[] = {
      {"flops_efficiency", speeds.of(model->batch.precision)},
      {"bandwidth_efficiency", speeds.memory},
      {"link_efficiency", speeds.link},
      {"network_efficiency", speeds.network},
      {"hidden_communication", speeds.hidden_communication.value_or(speeds.hidden_tensor)},
      {"hidden_gradients", speeds.hidden_gradients},
      {"device_launch", speeds.device_launch},
      {"host_launch", speeds.host_launch},
      {"time_factor", model->cluster.time_factor},
  };
  for (const auto& [name, value] : values) {
    if (field.name == name) return value;
  }
  return field.fit->usual;
}

}  // namespace

std::vector<const ScenarioField*> MachineFields() {
  std::vector<const ScenarioField*> fields;
  for (const ScenarioField& field : ScenarioFields()) {
    if (field.fit) fields.push_back(&field);
  }
  return fields;
}

std::vector<std::string_view> MachineFieldNames() {
  std::vector<std::string_view> names;
  for (const ScenarioField* field : MachineFields()) names.push_back(field->name);
  return names;
}

std::vector<std::vector<std::string_view>> UsualColumns(const ScenarioField& field) {
  if (field.name == "flops_efficiency") {
    return {{"device", "precision", "release"}, {"device", "precision"}, {"device"}};
  }
  if (field.name == "time_factor") {
    return {{"device"}, {"device", "precision"}, {"device", "precision", "release"}};
  }
  return {{"device"}};
}

Result<std::vector<FitConstant>> FindConstants(std::span<const std::string> names,
                                               const std::vector<std::string_view>& per) {
  std::vector<FitConstant> constants;
  std::set<std::string_view> seen;
  for (const std::string& word : names) {
    std::string name = word;
    std::ranges::replace(name, '-', '_');
    const ScenarioField* const field = FindField(name);
    if (field == nullptr || !field->fit) {
      const std::vector<std::string_view> known = MachineFieldNames();
      return InvalidArgument(
          "{} is no constant of the machine; {}", Quote(word),
          DidYouMean(name, known, fmt::format("there are {}", fmt::join(known, ", "))));
    }
    if (!seen.insert(field->name).second) {
      return InvalidArgument("{} is given twice", Quote(word));
    }
    constants.push_back({field, per.empty() ? UsualColumns(*field).front() : per});
  }
  return constants;
}

double ToSearch(const ScenarioField& field, double value) {
  const FitRange& range = *field.fit;
  value = std::clamp(value, range.least, range.most);
  return IsLogarithmic(field) ? std::log(value)
                              : (value - range.least) / (range.most - range.least);
}

double FromSearch(const ScenarioField& field, double at) {
  const FitRange& range = *field.fit;
  const double value =
      IsLogarithmic(field) ? std::exp(at) : range.least + at * (range.most - range.least);
  return std::clamp(value, range.least, range.most);
}

double SlopeOf(const ScenarioField& field, double at) {
  return IsLogarithmic(field) ? std::exp(at) : field.fit->most - field.fit->least;
}

void SetConstant(const ScenarioField& field, double value, Scenario& scenario) {
  if (const auto* text = std::get_if<TextMember>(&field.member)) {
    scenario.*(*text) = TimeText(value);
  } else {
    scenario.*std::get<NumberMember>(field.member) = value;
  }
}

double ConstantOf(const ScenarioField& field, const Scenario& scenario) {
  if (!IsGiven(field, scenario)) return DefaultOf(field, scenario);
  if (const auto* time = std::get_if<TextMember>(&field.member)) {
    const auto seconds = ParseSeconds(*(scenario.*(*time)));
    return seconds ? *seconds : field.fit->usual;
  }
  return *(scenario.*std::get<NumberMember>(field.member));
}

}  // namespace penstock
