#include "scenario/fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/notes.h"
#include "base/text/deprecated_names.h"
#include "cost_model/published_models.h"
#include "cost_model/request/model_sizes.h"
#include "schedule/text/cost_text.h"
#include "schedule/text/text.h"
#include "simulate/runs/monte_carlo.h"
#include "simulate/steady_state.h"

namespace penstock {
namespace {

constexpr int kMostRuns = 1'000'000;
constexpr double kMostSize = static_cast<double>(kMostShapeSize);
constexpr double kMostLaunch = 300e-6;        // seconds
constexpr int kOrders = kSearches | kPasses;  // what costs an action may change its place

bool ReadsChunks(const Algorithm& algorithm, const Scenario& scenario) {
  return *scenario.chunks >= algorithm.supported.min_chunks &&
         *scenario.chunks <= algorithm.supported.max_chunks;
}
bool ReadsSlices(const Algorithm& algorithm, const Scenario& scenario) {
  return algorithm.supported.slices || *scenario.slices == 1;
}
bool ReadsSteps(const Algorithm& algorithm, const Scenario& scenario) {
  return algorithm.supported.steps || *scenario.steps == 1;
}
template <bool SupportedParameters::*parameter>
bool Reads(const Algorithm& algorithm, const Scenario&) {
  return algorithm.supported.*parameter;
}

// The choices of a field whose names are an array.
template <std::size_t N>
std::vector<std::string_view> List(const std::array<std::string_view, N>& names) {
  return {names.begin(), names.end()};
}

std::vector<std::string_view> NamesOfModels() {
  std::vector<std::string_view> names = PublishedModelNames();
  names.insert(names.end(), std::begin(kUnnamedModels), std::end(kUnnamedModels));
  return names;
}

#define ROW(group_, member_, value, text, ...) \
  ScenarioField{.name = #member_,              \
                .member = &Scenario::member_,  \
                .group = FieldGroup::group_,   \
                .value_name = value,           \
                .help = text __VA_OPT__(, ) __VA_ARGS__},

std::vector<ScenarioField> ModelRows() {
  return {
#define MODEL_FIELD(type, member, ...) ROW(kModel, member, __VA_ARGS__)
#define SIZE_FIELD(type, member, ...) ROW(kModel, member, __VA_ARGS__)
#include "cost_model/request/model_fields.def"
#undef MODEL_FIELD
#undef SIZE_FIELD
  };
}

std::vector<ScenarioField> OwnRows() {
  return {
#define FIELD(group, type, member, ...) ROW(group, member, __VA_ARGS__)
#define LIST_FIELD(group, member, ...) ROW(group, member, __VA_ARGS__)
#define MODEL_FIELDS
#include "scenario/scenario_fields.def"
#undef FIELD
#undef LIST_FIELD
#undef MODEL_FIELDS
  };
}
#undef ROW

std::vector<ScenarioField> AllFields() {
  std::vector<ScenarioField> all = OwnRows();
  const auto of_models = std::ranges::find(all, FieldGroup::kModel, &ScenarioField::group);
  const std::vector<ScenarioField> model = ModelRows();
  all.insert(of_models, model.begin(), model.end());
  for (ScenarioField& field : all) {
    const bool of_model = field.group == FieldGroup::kModel;
    if (of_model) field.ordered_by = kSearches | kPasses;
    if (field.with_model == WithModel::kByGroup) {
      field.with_model = of_model ? WithModel::kOnlyWith : WithModel::kEither;
    }
    for (const auto& [former, current] : kFormerFieldNames) {
      if (field.name != former && field.name != current) continue;
      field.name = current;
      field.former_name = former;
    }
  }
  return all;
}

}  // namespace

std::span<const ScenarioField> ScenarioFields() {
  static const std::vector<ScenarioField> fields = AllFields();
  return fields;
}

const ScenarioField* FindField(std::string_view name) {
  const auto found = std::ranges::find(ScenarioFields(), name, &ScenarioField::name);
  return found == ScenarioFields().end() ? nullptr : &*found;
}

std::string_view CurrentFieldName(std::string_view name) {
  for (const ScenarioField& field : ScenarioFields()) {
    if (field.former_name.empty() || field.former_name != name) continue;
    NoteFormerName(name, field.name);
    return field.name;
  }
  return name;
}

}  // namespace penstock
