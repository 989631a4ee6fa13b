// Schedules as text: PyTorch's CSV, one row a rank, one cell an action.
//
//   0F0,1F0,3I0,3W0   (0F0;1B1)OVERLAP_F_B   0SEND_F0   1UNSHARD   2STEP   0OFFLOAD3
//
// torch.distributed.pipelining's _load_csv reads what WriteCsv writes, but for the ops that torch
// lacks (OFFLOAD, RELOAD, RECOMPUTE, STEP); RequireTorchOps refuses those by name.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "schedule/schedule.h"

namespace penstock {

std::string ToText(const Part& part);
std::string ToText(const Action& action);
Result<Action> ParseAction(std::string_view cell);

// The op's letters in a cell: "F", "SEND_F", "UNSHARD".
std::string_view OpText(Op op);

// A weight policy as options and files name it: "double-buffered".
std::string_view ToText(WeightPolicy weights);
Result<WeightPolicy> ParseWeights(std::string_view text);

// One row a rank, each line ended by '\n'.
std::string WriteCsv(const Schedule& schedule);

// What the cells cannot say; see FILE.yaml beside FILE.csv.
struct CsvOptions {
  // Default: 1 + the largest row number (over slices and steps), in every chain.
  std::optional<int> microbatches = {};
  std::optional<int> replicas = {};          // default 1
  std::optional<int> slices = {};            // default 1
  std::optional<int> steps = {};             // default 1
  std::optional<WeightPolicy> weights = {};  // default kFlush
};

// Reads rows; the placement is read off them. Blank cells mean nothing. Errors name the row, the
// column and the cell. The result is well-formed (every stage has one rank) but may be invalid.
Result<Schedule> ParseCsv(std::string_view text, const CsvOptions& options = {});

// Files. LoadSchedule also reads FILE.yaml where it is there; `options` fields that are set win.
// SaveSchedule writes FILE.csv atomically, and FILE.yaml where something is not the default.
Result<Schedule> LoadSchedule(const std::string& path, const CsvOptions& options = {});
Status SaveSchedule(const Schedule& schedule, const std::string& path);

// Refuses what torch's reader does not know, by name: ops, replicas, slices, steps.
Status RequireTorchOps(const Schedule& schedule);

}  // namespace penstock
