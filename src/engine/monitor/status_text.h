// The status of a run as text.
#pragma once

#include <span>
#include <string>

#include "monitor/run_status.h"
#include "report/table.h"

namespace penstock {

struct TextSize {
  int columns = 100;
  int lines = 0;  // 0: as many as needed
};

// Returns the whole status: progress, loss, speed, a table of the ranks, the stragglers. Every line
// ends with '\n' and fits in `size`.
std::string StatusText(const RunStatus& status, const TextSize& size);
// Returns one line, without a newline, for logs.
std::string StatusLine(const RunStatus& status);

// The parts that the page shares.
std::string StateText(const RunStatus& status);  // "running", or what is wrong and what to do
std::string StragglerText(const Straggler& straggler);
Table RanksTable(const RunStatus& status);

// Returns at most `most` points of the loss over steps: means of equally many consecutive steps.
// Leaves out losses that are not finite.
std::vector<std::pair<double, double>> LossPoints(std::span<const StepMetric> metrics,
                                                  std::size_t most);

}  // namespace penstock
