#include "report/time_use.h"

#include <algorithm>
#include <cmath>

#include "report/palette.h"

namespace penstock {

std::vector<std::string> ComparedRow(const std::string& name, const std::vector<double>& values,
                                     const AmountFormat& format) {
  std::vector<std::string> row = {name};
  for (const double value : values) row.push_back(format(value));
  if (values.size() == 2) {
    constexpr double kRounding = 1e-9;
    const double more = values[1] - values[0];
    const bool differs = std::abs(more) > kRounding * std::max(values[0], values[1]);
    row.push_back(WithSign(format(differs ? more : 0)));
  }
  return row;
}

Table TimeUseTable(const std::vector<std::string>& labels, const std::vector<TimeUse>& uses,
                   const AmountFormat& format) {
  Table table;
  table.title = "Time of a rank, on average";
  table.columns = {"part"};
  table.columns.insert(table.columns.end(), labels.begin(), labels.end());
  if (labels.size() == 2) table.columns.emplace_back("difference");
  double longest = 0;
  for (const TimeUse& use : uses) {
    double all = 0;
    for (const double time : use.by_op) all += time;
    for (const double time : use.bubbles) all += time;
    longest = std::max(longest, all);
  }
  constexpr double kOfSum = 1e-4;  // less is 0 in the digits of the largest
  const auto vanishes = [&](double value) { return std::abs(value) <= kOfSum * longest; };
  const auto add = [&](const std::string& name, const auto& of) {
    std::vector<double> values;
    for (const TimeUse& use : uses) values.push_back(of(use));
    if (std::ranges::all_of(values, vanishes)) return;
    table.rows.push_back(ComparedRow(name, values, format));
  };
  for (std::size_t op = 0; op < kOpCount; ++op) {
    add(std::string(OpName(static_cast<Op>(op))),
        [op](const TimeUse& use) { return use.by_op[op]; });
  }
  for (std::size_t cause = 0; cause < kBubbleCauses; ++cause) {
    add(fmt::format("idle: {}", NameOf(static_cast<BubbleCause>(cause))),
        [cause](const TimeUse& use) { return use.bubbles[cause]; });
  }
  return table;
}

}  // namespace penstock
