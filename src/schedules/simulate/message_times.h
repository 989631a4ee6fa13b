// When messages were sent and arrived, from the simulator's tables. Private to simulate/.
#pragma once

#include <vector>

#include "schedule/sent_message.h"
#include "simulate/arrivals.h"
#include "simulate/network.h"
#include "simulate/stage_prices.h"

namespace penstock {

inline SentMessage ToSentMessage(const Network::Message& delivery, const Arrivals& arrivals) {
  return {arrivals.KindOf(delivery.key),
          static_cast<std::uint16_t>(arrivals.StageOf(delivery.key)),
          static_cast<int>(arrivals.MicrobatchOf(delivery.key)),
          delivery.from,
          delivery.to,
          delivery.sent,
          delivery.time};
}

// Adds all messages of a run in which each arrived one latency after it was sent.
void AddMessages(const StagePrices& stages, const Arrivals& arrivals, std::size_t indices,
                 double latency, std::vector<SentMessage>& messages);

}  // namespace penstock
