// One step of a run as a picture of time: what a trace kept of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/measure/trace.h"
#include "simulate/memory.h"

namespace penstock {

// The units of a run's times and memory, as the report names them.
constexpr std::string_view kSeconds = "s";
constexpr std::string_view kBytes = "B";

// What each rank held over a round, in bytes: what an F adds from its start on, as the simulator
// counts it. `timeline` is the round's.
std::vector<MemoryCurve> MeasuredMemory(const Trace& trace, const Timeline& timeline,
                                        std::int64_t round);

// Writes the round as a Chrome trace. May be called while the ranks are in later rounds, as long as
// the trace keeps this one. Errors: kUnavailable where the file cannot be written.
Status WriteStepTrace(const Trace& trace, std::int64_t round, const std::string& title,
                      const std::string& path);

}  // namespace penstock
