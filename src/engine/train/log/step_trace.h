// The timeline of one step of a run, from a trace.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/measure/trace.h"
#include "simulate/memory/memory_over_time.h"

namespace penstock {

// The units of a run's times and memory in the report.
constexpr std::string_view kSeconds = "s";
constexpr std::string_view kBytes = "B";

// Returns the memory of each rank over a round, in bytes. `timeline` is the round's. An F allocates
// at its start, as in the simulator.
std::vector<MemoryCurve> MeasuredMemory(const Trace& trace, const Timeline& timeline,
                                        std::int64_t round);

// Writes the round as a Chrome trace. The ranks may run later rounds meanwhile, as long as the
// trace still has this one. Errors: kUnavailable if the file cannot be written.
Status WriteStepTrace(const Trace& trace, std::int64_t round, const std::string& title,
                      const std::string& path);

}  // namespace penstock
