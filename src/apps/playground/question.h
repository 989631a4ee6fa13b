// What the page asks: a scenario, and perhaps a schedule as text.
//
//   {"ask": "show", "schedule": "zbv", "fields": {"ranks": "4", "pass": ["optimizer"]},
//    "stage_costs": [{"forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 1}],
//    "in_bytes": false, "topology": [{"ranks": 8, "latency": 0.1, "bandwidth": 2}], "csv":
//    "0F0,..."}
//
// `fields` are a scenario's (scenario/fields.h), by name and as text. With `csv`, its lanes are
// priced in place of the schedule's. `in_bytes` says that the activations of stages are
// bytes. Stages may have all costs of schedule/stage_costs.def, and links several levels.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "scenario/fields.h"
#include "scenario/scenario.h"

namespace penstock::playground {

using Json = nlohmann::ordered_json;

// A page with more actions is slow to draw and to search.
inline constexpr double kMostActions = 100'000;

struct Question {
  std::string ask;
  Scenario scenario;  // with one schedule, unless there is `csv`
  std::optional<std::string> csv = {};
  Json rest = {};  // all members, for what only some questions have
};

// Whether a page without files and models has the field.
bool IsOffered(const ScenarioField& field);

// Errors: kInvalidArgument if the text is no such object, about a field, or if the schedule would
// have more than kMostActions.
Result<Question> ReadQuestion(std::string_view text);

// Returns a member that is a whole number. Errors: kInvalidArgument if it is missing.
Result<int> NumberOf(const Json& object, const char* key);

}  // namespace penstock::playground
