// Which events of a trace are the actions of a pipeline. A rule is a YAML file, or built in:
//
//   events:                                      # the first match of a name counts
//     - match: 'stage(?<stage>\d+) fwd (?<microbatch>\d+)'
//       action: F                                # F, B, I or W
//     - match: '^PP:(?<action>.*)$'              # or the whole action, as in a CSV: 0F3, 1B2
//   category: user_annotation                    # of these events only; default: any
//   wait: '_wait_batch_p2p'                      # an action starts when such an event in it ends
//   step: '^ProfilerStep#(?<step>\d+)$'          # contains the actions of one step
//   rank: file                                   # file, process, thread, or group: (?<rank>\d+)
//
// Groups that a pattern may have: action, stage, chunk (of the rank's stages), microbatch, rank. An
// event without a microbatch is numbered in the order of its rank. One without a stage is of the
// rank's only stage; with several chunks, in the order of Megatron-LM.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "interop/traces/name_pattern.h"
#include "schedule/action.h"

namespace penstock {

struct EventRule {
  NamePattern pattern;
  std::optional<Op> op;  // empty: the group "action" has it
};

// What distinguishes ranks.
enum class RankSource {
  kAny,  // files if there are several, else processes if several have actions, else threads
  kFile,
  kProcess,
  kThread,
  kGroup,
};

struct TraceRule {
  std::string name;  // for errors: its file, or what it reads
  std::vector<EventRule> events;
  std::string category;  // empty: any
  std::vector<NamePattern> waits;
  std::vector<NamePattern> steps;
  RankSource rank = RankSource::kAny;
};

// Errors: kNotFound, or kInvalidArgument with the file, the line and the key.
Result<TraceRule> LoadTraceRule(const std::string& path);

// torch.distributed.pipelining, then Megatron-LM. The first rule that matches a trace applies.
const std::vector<TraceRule>& BuiltInTraceRules();

}  // namespace penstock
