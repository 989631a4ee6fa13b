// What the figures of a report mean, in sentences.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/report.h"

namespace penstock {

// Says which rank is slow and by how much, what ranks wait for and, of several runs, which causes
// of idle time vanish from the first to the shortest one, and what that saves. Runs without an
// explanation have no sentences; a run that does not fit its memory is not called the best.
std::vector<std::string> Conclusions(const ReportInput& input, std::span<const ReportRun> runs);

}  // namespace penstock
