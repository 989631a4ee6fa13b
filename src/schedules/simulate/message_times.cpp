#include "simulate/message_times.h"

namespace penstock {

void AddMessages(const StagePrices& stages, const Arrivals& arrivals, std::size_t indices,
                 double latency, std::vector<SentMessage>& messages) {
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (const ValueKind kind : {ValueKind::kActivation, ValueKind::kGradient}) {
      const int consumer = stages[stage].consumer[Index(kind)];
      if (consumer == kNobody) continue;
      for (std::size_t n = 0; n < indices; ++n) {
        const double arrived = arrivals[arrivals.KeyOf(kind, stage, n)];
        if (arrived < 0) continue;
        messages.push_back({kind, static_cast<std::uint16_t>(stage), static_cast<int>(n),
                            stages[stage].rank, consumer, arrived - latency, arrived});
      }
    }
  }
}

}  // namespace penstock
