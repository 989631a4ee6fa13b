// Schedules as text: the CSV of PyTorch, one line per rank, one cell per action. What the actions
// cannot say stands in a header, the first line, if any of it differs from its default.
// docs/schedule_format.md specifies the format.
//
//   slices=2,steps=3
//   rank=0,0F0,1F0,3I0,3W0,(0F0;1B1)OVERLAP_F_B,0SEND_F0,1UNSHARD,2STEP,0OFFLOAD3
//
// _load_csv of torch.distributed.pipelining reads what WriteCsv writes, except for files with a
// header and the ops OFFLOAD, RELOAD, RECOMPUTE, STEP, EMBED, S, T and EMBED_GRAD, which it
// refuses. RequireTorchOps refuses them by name, and what torch cannot run. torch 2.15 is the first
// release with WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD, and lowered files for it need them.
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"
#include "schedule/untrained.h"

namespace penstock {

std::string ToText(const Part& part);
std::string ToText(const Action& action);
Result<Action> ParseAction(std::string_view cell);

// Returns the op's letters in a cell: "F", "SEND_F", "UNSHARD".
std::string_view OpText(Op op);

// Weight policies as options and files spell them: "double-buffered".
inline constexpr std::array<std::string_view, 3> kWeightPolicyNames = {"flush", "stashed",
                                                                       "double-buffered"};
std::string_view ToText(WeightPolicy weights);
Result<WeightPolicy> ParseWeights(std::string_view text);

// Writes one line per rank, each ended by '\n', and before them the header, if it has a key.
std::string WriteCsv(const Schedule& schedule);

// What the actions do not say: the keys of the header.
struct CsvOptions {
  // Default: 1 + the largest microbatch index (over slices and steps), in every chain.
  std::optional<int> microbatches = {};
  std::optional<int> replicas = {};          // default 1
  std::optional<int> slices = {};            // default 1
  std::optional<int> steps = {};             // default 1
  std::optional<WeightPolicy> weights = {};  // default kFlush
  // Stages of the model (untrained.h); default none.
  std::optional<std::vector<int>> frozen = {}, adapters = {};
};

// Returns `first`, with fields of `second` where `first` has none.
CsvOptions FirstSet(const CsvOptions& first, const CsvOptions& second);

// How a text says what its actions do not: by a first line, or by the blank cell of an earlier
// version.
enum class HeaderForm : std::uint8_t { kNone, kLine, kHidden };
HeaderForm FormOfHeader(std::string_view text);

// Reads lanes and derives the placement from them. Fields that `options` sets take precedence over
// the header. Ignores blank cells. Errors name the line, the column and the cell. The result is
// well-formed (every stage has one rank) but may be invalid.
Result<Schedule> ParseCsv(std::string_view text, const CsvOptions& options = {});

// Read and write files. Earlier versions wrote a companion, FILE.yaml, instead of the header:
// LoadSchedule reads it if FILE.csv has no header; `options` take precedence. SaveSchedule writes
// FILE.csv atomically and removes a companion, which would change the meaning of the new file.
Result<Schedule> LoadSchedule(const std::string& path, const CsvOptions& options = {});
Status SaveSchedule(const Schedule& schedule, const std::string& path);

// Refuses what torch's reader does not support, by name: ops, replicas, slices, steps, untrained
// stages.
Status RequireTorchOps(const Schedule& schedule);

}  // namespace penstock
