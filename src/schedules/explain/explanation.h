// Why a timeline takes as long as it does.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "explain/bubbles.h"
#include "schedule/schedule.h"
#include "schedule/sent_message.h"
#include "schedule/timeline.h"

namespace penstock {

struct Explanation {
  std::vector<std::vector<Bubble>> bubbles;  // by rank
  std::vector<ActionAt> critical_path;
};

// Arguments as of ActionInputs, FindBubbles and CriticalPath.
Explanation Explain(const Schedule& schedule, const Timeline& timeline,
                    std::span<const SentMessage> messages = {},
                    const std::optional<MemoryBound>& bound = {});

}  // namespace penstock
