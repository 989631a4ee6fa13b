// Tables that compare simulated schedules.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/table.h"
#include "scenario/figures/simulated_json.h"

namespace penstock {

// One row per schedule. Below it, a row of figures with overlapped pairs at F + B and a row of
// closed forms, where there are any.
Table ComparisonTable(const std::vector<Simulated>& all);

// Returns the table with the best values marked, and with ratios of makespan and peak memory to the
// first schedule. A single schedule has neither.
Table RankedTable(const std::vector<Simulated>& all);

// The largest time and memory of a table, in whose units all others are written.
struct TableUnits {
  double longest = 0, most = 0;

  std::string Time(const PricedSchedule& chosen, double time) const;
  std::string Memory(const PricedSchedule& chosen, double amount) const;
};
TableUnits UnitsOf(std::span<const Simulated* const> all);
TableUnits UnitsOf(const std::vector<Simulated>& all);

// Sentences that say what the figures mean, and what to try next with its command, as lines above
// them. Requires: as ExplanationOf.
std::string ConclusionsText(const Scenario& scenario, const std::vector<Simulated>& all);

// The lines below a comparison that give its units.
std::string UnitsText(std::span<const Simulated* const> all);
std::string UnitsText(const std::vector<Simulated>& all);
// The column next to a figure that has its ratio to the first schedule's.
inline constexpr const char* kRatioColumn = "vs first";
// "0.87x"; "-" for a base of 0.
std::string RatioText(double value, double base);
// The line that explains the marks and ratios of a table; empty if it has none. With groups, these
// compare only the rows of a group.
std::string MarksText(const Table& table, bool has_groups = false);

// A figure for which less is better.
struct RankedFigure {
  const char* column;
  double (*value)(const Simulated& simulated);
  std::string (*text)(const Simulated& simulated, const TableUnits& units);
  // Figures in different units are not comparable.
  std::string (*unit)(const Simulated& simulated);
  bool ratio;  // whether tables have its ratio to the first schedule's
};
// Makespan, bubble, span bubble, peak memory, messages and bytes per microbatch; with jitter, also
// mean, median and 95th percentile of the makespans of all runs.
std::span<const RankedFigure> RankedFigures(bool with_jitter);
// Whether any of these schedules ran with jitter.
bool AnyJitter(std::span<const Simulated* const> all);

// Returns the members with the least value of a figure, to rounding, among those that ran within
// their limits and have one. Empty if the figure has several units.
std::vector<const Simulated*> BestOf(std::span<const Simulated* const> members,
                                     const RankedFigure& figure);
// Marks the best of `members` in a column of `table`; members[i] is in row rows[i]. A schedule
// above the memory limit is never the best. Marks nothing if all are equally good.
void MarkBest(Table& table, std::size_t column, const RankedFigure& figure,
              std::span<const Simulated* const> members, std::span<const std::size_t> rows);
// "0.87x"; "-" if there is no ratio.
std::string RatioText(const RankedFigure& figure, const Simulated& simulated,
                      const Simulated& first);

}  // namespace penstock
