// What the fields of a scenario mean: the parameters of algorithms, limits and sizes in the unit of
// the costs, lengths of microbatches, runs with jitter.
//
// Errors: kInvalidArgument about the field whose value is refused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenario/scenario.h"
#include "schedule/catalog.h"
#include "simulate/runs/monte_carlo.h"

namespace penstock {

// Names the field in the error of a function that parses its text.
template <class T>
Result<T> Of(std::string_view field, Result<T> read) {
  if (read) return read;
  Error error = std::move(read).error();
  if (error.parameter.empty()) error.parameter = field;
  return tl::unexpected(std::move(error));
}

// What times without a unit mean.
PlainTime PlainTimeOf(const Scenario& scenario);

// The parameters for algorithms. Checks all fields but the passes' and links'.
Result<ScheduleParams> ParamsOf(const Scenario& scenario);

// Returns a limit or size, such as "6" or "6GiB", in the unit of ScheduleParams.
Result<double> LimitOf(const Scenario& scenario, const std::string& field, const std::string& text);

// Returns the bytes of a rank's activations of a microbatch. Requires: the field is given.
Result<double> ActivationBytes(const Scenario& scenario);
// Returns the size of a message of one slice; 0 if none is given.
// Returns the stages without a part of the backward.
Result<Untrained> UntrainedOf(const Scenario& scenario);
Result<double> MessageBytes(const Scenario& scenario, int slices);

// Returns the links between ranks: from `topology`, or one level with `comm` and `bandwidth`. Empty
// if messages take `comm` whatever their size.
Result<Topology> LinksOf(const Scenario& scenario);
// Returns the time of a message that shares no link, between the ranks and for the scale that make
// it longest. Requires: there are links.
Result<double> LongestMessage(const Scenario& scenario, int ranks, double bytes);

// Returns the lengths of the microbatches; empty if none are given.
Result<std::vector<double>> LengthsOf(const Scenario& scenario);

// Returns the runs with jitter, if any are asked for.
Result<std::optional<MonteCarloOptions>> JitterOf(const Scenario& scenario);

}  // namespace penstock
