// Chrome traces: JSON that the PyTorch profiler, converters of Nsight Systems and others write.
//
//   {"traceEvents": [{"ph": "X", "name": "PP:0F3", "cat": "user_annotation", "ts": 12.5, "dur": 3,
//                     "pid": 1, "tid": 2}, ...], "distributedInfo": {"rank": 0, ...}, ...}
//
// or only the list of events. Only complete events ("X") and pairs of "B" and "E" are read.
//
// Errors: kNotFound for a missing file, kInvalidArgument for one that is not a trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// Texts are indices in TraceFile::texts. Times are in microseconds, and NaN where the file has
// none.
struct TraceEvent {
  double start = 0;
  double duration = 0;
  std::uint32_t name = 0;
  std::uint32_t category = 0;
  std::uint32_t process = 0;
  std::uint32_t thread = 0;
};

struct TraceFile {
  std::string path;
  // The PyTorch profiler's distributedInfo: this rank, the number of all ranks, and the ranks of
  // each process group.
  std::optional<int> rank;
  int world_size = 0;  // 0 if unknown
  std::vector<std::vector<int>> groups;
  std::string own;                    // JSON: what Penstock says of a trace that it wrote itself
  std::int64_t base_nanoseconds = 0;  // when time 0 of the events was; the PyTorch profiler's
  std::vector<std::string> texts;     // each once; the first is empty
  std::vector<TraceEvent> events;     // in the order of the file
};

// Reads a file, which may be compressed by gzip.
Result<TraceFile> ReadTraceFile(const std::string& path);

// Whether a file's name ends in .json or .json.gz, in any case.
bool HasTraceEnding(const std::string& path);

}  // namespace penstock
