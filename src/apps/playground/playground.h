// The playground: answers what its page asks, so that the page's figures are the program's.
//
// Question and answer are JSON (question.h). By "ask":
//   catalog    the schedules and fields that the page offers
//   show       figures and timeline of a schedule, or the faults of a text (answer.h)
//   figures    figures of a schedule in a comparison
//   places     where an action may move ("rank", "from")
//   move       the schedule after a move ("rank", "from", "to"), as of `show`
//   improve    a shorter order of the same actions, as of `show`, or {"none": true}
//   name       {"names": [...]}: the schedules of the catalog that this is
// Whatever fails is {"error": {"line", "field"}}.
#pragma once

#include <string>
#include <string_view>

namespace penstock::playground {

// Never throws for any text. Thread-safe.
std::string Ask(std::string_view question);

}  // namespace penstock::playground
