#include "explain/explanation.h"

#include "explain/critical_path.h"

namespace penstock {

Explanation Explain(const Schedule& schedule, const Timeline& timeline,
                    std::span<const SentMessage> messages,
                    const std::optional<MemoryBound>& bound) {
  const ActionInputs inputs(schedule, timeline, messages);
  return {FindBubbles(schedule, timeline, inputs, bound), CriticalPath(schedule, timeline, inputs)};
}

}  // namespace penstock
