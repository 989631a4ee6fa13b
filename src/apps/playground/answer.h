// The answer to a question: the figures and the data of the picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "playground/priced.h"
#include "playground/question.h"

namespace penstock::playground {

// Returns the JSON as text. Bytes that are no UTF-8 are replaced.
std::string TextOf(const Json& json);

// {"error": {"line": "ranks 0: ...", "field": "ranks"}}
Json ErrorJson(const Error& error);

// {"faults": [{"rank", "position", "action", "reason", "line"}]}
Json FaultsJson(const std::vector<Fault>& faults);

// Simulates the subject. The answer has its text ("csv"), "figures" for people and "exact" ones as
// `penstock simulate --json` prints them, "command" that prints them, "bound" on the makespan of
// the placement, or null, and "page": the data of its timeline (report/page/page_data.h) with the
// HTML of "legend", "tables" and "unit", and the text "caption". "positions" has, by rank, the
// position in its lane of each drawn action.
// Requires: the subject has no faults.
Result<std::string> ShowText(const Question& question, Subject subject);

// Returns the lower bound on the makespan of every schedule of the same stages on the same ranks,
// with overlapped pairs only if this one has them, or nothing if the bound does not know its
// actions. The schedule may use the memory of the scenario's limit.
std::optional<double> BoundOf(const PricedSchedule& priced);

}  // namespace penstock::playground
