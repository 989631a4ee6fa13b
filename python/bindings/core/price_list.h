// Costs that do not belong to a schedule yet: what a configuration of `penstock simulate` says
// about prices, in its own keys.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "analytic/request/model_request.h"
#include "base/result.h"
#include "schedule/catalog.h"
#include "schedule/cost_files/layer_costs.h"
#include "schedule/costs.h"
#include "schedule/text/cost_text.h"

namespace penstock::python {

class PriceList {
 public:
  // Reads a configuration. Ignores keys that choose a schedule. Errors: kInvalidArgument, naming
  // the line and the key.
  static Result<PriceList> Parse(const std::string& yaml);
  // Returns what Parse reads, in one form for equal prices.
  std::string Text() const;

  // Returns the costs of the schedule's actions. Errors: kInvalidArgument if they do not fit it.
  Result<Costs> CostsOf(const Schedule& schedule) const;
  // Sets what a search plans with. Errors: as CostsOf, and those of CheckParams.
  Status Plan(const Algorithm& algorithm, ScheduleParams& params) const;

  std::string memory_unit() const { return in_bytes_ || model() ? "B" : ""; }
  const std::string& time_unit() const { return time_unit_; }

 private:
  const ModelRequest* model() const { return std::get_if<ModelRequest>(&source_); }
  Result<Costs> CostsOfStages(const Placement& placement, int slices, int vocabulary_ranks) const;
  Status SetMessages(int slices, Costs& costs) const;

  std::variant<UniformCost, std::vector<StageCosts>, std::vector<LayerGroup>, ModelRequest> source_;
  bool in_bytes_ = false;
  std::string time_unit_;  // "s", or empty
  std::optional<double> comm_;
  std::optional<std::string> overlap_, transfers_;
  std::optional<double> message_bytes_;  // of a whole microbatch
  Topology topology_;
  std::vector<std::string> prices_;  // KEY=VALUE
};

}  // namespace penstock::python
