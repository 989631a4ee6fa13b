// The values that a sweep gives to options:
//
//   --sweep ranks=8,16 microbatches=16..128 schedule=all cost=1 cost=1,1.2,0.8
//
//   sweep:                         the same in a configuration
//     ranks: [8, 16]
//     microbatches: 16..128        16, 32, 64, 128; 16..128+16 is 16, 32, 48, ..., 128
//     schedule: all                every algorithm of the catalog
//     cost: [1, [1, 1.2, 0.8]]
//
// Keys are the fields that a schedule may have of its own (own_fields.h), and `schedule`. Values of
// cost, pass, price and microbatch_lengths may contain commas, so on the command line each
// KEY=VALUE of these is one value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text/yaml_map.h"
#include "scenario/scenario.h"

namespace penstock {

inline constexpr std::string_view kScheduleAxis = "schedule";
inline constexpr std::string_view kAllSchedules = "all";

// The keys that a sweep may have.
std::vector<std::string_view> SweepKeys();

// Errors: kInvalidArgument for unknown and repeated keys, for values that are empty or given twice,
// and for malformed ranges.
Result<std::vector<SweepAxis>> ParseSweep(const std::vector<std::string>& words);
Result<std::vector<SweepAxis>> ReadSweep(const YamlMap& map);

}  // namespace penstock
