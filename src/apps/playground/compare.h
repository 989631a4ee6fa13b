// The schedules of the catalog next to the one on the page.
#pragma once

#include <string>
#include <vector>

#include "playground/question.h"

namespace penstock::playground {

// {"schedules": [{"name", "summary", "constraint", "source", "is_search", "reads": [field]}],
//  "fields": [{"name", "help", "value"}]}: what the page offers.
Json CatalogJson();

// {"name", "makespan", "bubble", "peak_memory", "above_limit"} of the question's schedule, without
// the fields that it does not read.
Result<Json> FiguresJson(const Question& question);

// Returns the names of the schedules of the catalog with the same lanes, of the same shape and
// with the question's costs. Searches are left out.
std::vector<std::string> NamesOf(const Question& question, const Schedule& schedule);

}  // namespace penstock::playground
