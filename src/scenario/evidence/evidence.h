// How far a prediction may be off: the errors of measured runs of its kind.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cost_model/model_on_cluster.h"

namespace penstock {

struct Range {
  double least = 0, most = 0;
};

// Runs of a table that have an implementation, a device and a kind in common.
struct MeasuredRows {
  std::string_view table, implementation, device;
  bool has_experts = false;
  bool divides_context = false;
  int rows = 0;
  // Mean of |predicted / measured - 1| with the one factor of all times that the other tables of
  // the implementation give, and the mean of predicted / measured - 1 as it is.
  double error = 0, bias = 0;
  Range devices = {}, sequence = {};
};

// All of them (measured_tables.def, which bench/run measured writes).
std::span<const MeasuredRows> AllMeasuredRows();

// What a prediction rests on.
struct Evidence {
  std::string implementation, device;
  bool has_experts = false, divides_context = false;
  std::vector<MeasuredRows> rows = {};    // of its kind; empty: nothing was measured
  std::vector<std::string> outside = {};  // in what it is outside of them

  int count() const;
  double error() const;  // of all rows, in the mean
  // One line: "transformer-engine was 5.5% off in 65 runs of ..."
  std::string Text() const;
};

Evidence EvidenceOf(const ModelOnCluster& model);

// The evidence as data: null errors if nothing was measured.
nlohmann::ordered_json ToJson(const Evidence& evidence);

}  // namespace penstock
