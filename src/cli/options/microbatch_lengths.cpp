// The lengths of microbatches in ScheduleOptions, for the figures and for searches.
#include "schedule/pricing/microbatch_lengths.h"

#include <algorithm>

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "cli/options/option_values.h"
#include "cli/options/schedule_options.h"

namespace penstock {

void ScheduleOptions::DefineLengths(CLI::App& app) {
  AddText(app, "--microbatch-lengths", microbatch_lengths,
          "Relative lengths of the microbatches, repeated if there are fewer (1,0.5,2): times, "
          "activations and messages scale with them")
      ->type_name("X,...");
}

Result<std::vector<double>> ScheduleOptions::Lengths() const {
  std::vector<double> lengths;
  const std::string text = microbatch_lengths.value_or("");
  for (std::size_t begin = 0; microbatch_lengths && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const auto length = ParseNumber(part);
    if (!length) {
      return InvalidArgument("--microbatch-lengths {}: give numbers (1,0.5,2)", Quote(part));
    }
    lengths.push_back(*length);
    begin = end + 1;
  }
  const Status status = CheckLengths(lengths);
  if (!status) return tl::unexpected(NameAsGiven(status.error(), {}));
  return lengths;
}

Status ScheduleOptions::SetLengths(ChosenSchedule& chosen, Costs& costs) const {
  PENSTOCK_TRY(const std::vector<double> lengths, Lengths());
  const Schedule& schedule = chosen.schedule;
  const BatchShape shape{schedule.placement, schedule.microbatches, schedule.slices};
  PENSTOCK_TRY_STATUS(ScaleByLength(costs, lengths, shape));
  chosen.mean_length = MeanLength(costs, shape);
  return {};
}

Status ScheduleOptions::PlanWithSpeed(const Algorithm& algorithm, const ScheduleParams& checked,
                                      ScheduleParams& asked) const {
  PENSTOCK_TRY(const std::vector<double> lengths, Lengths());
  const bool scales = std::ranges::any_of(lengths, [](double length) { return length != 1; });
  if (!scales && !changes_speed()) return {};
  const Placement placement = PlacementOf(algorithm, checked);
  if (!asked.costs) {
    PENSTOCK_TRY(asked.costs, CostsFor(placement, checked.slices));
  }
  PENSTOCK_TRY_STATUS(
      ScaleByLength(*asked.costs, lengths, {placement, checked.microbatches, checked.slices}));
  asked.costs->by_slice.clear();
  return SetSpeed(placement, *asked.costs);
}

}  // namespace penstock
