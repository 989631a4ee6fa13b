// Costs of Python: the fields of a scenario that price, which fit any schedule.
#pragma once

#include <string>

#include "base/result.h"
#include "scenario/price/build.h"
#include "scenario/scenario.h"

namespace penstock::python {

class ScenarioCosts {
 public:
  // Reads a configuration. Ignores keys that choose a schedule or noise. Errors: kInvalidArgument
  // about the field, with its line.
  static Result<ScenarioCosts> Parse(const std::string& yaml);
  // Returns what Parse reads, in one form for equal costs.
  std::string Text() const;

  const Scenario& scenario() const { return scenario_; }
  // Prices the schedule's actions. Errors: kInvalidArgument if the costs do not fit it.
  Result<PricedSchedule> PriceOf(const Schedule& schedule) const;

  std::string memory_unit() const;
  std::string time_unit() const { return scenario_.time_unit.value_or(""); }

 private:
  Scenario scenario_;
};

// Reads the fields of a JSON object or YAML map into the scenario; fields that are already set win.
Status ReadFields(const std::string& yaml, const Purpose& purpose, Scenario& scenario);

}  // namespace penstock::python
