// The messages of ranks that run in order of time: over links that they share, and with ranks that
// wait for them. Private to simulate/.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "base/index.h"
#include "schedule/costs.h"
#include "simulate/engine_state.h"
#include "simulate/network.h"

namespace penstock {

class MessageExchange {
 public:
  // Whether messages cost more than one latency each.
  static bool Needed(const Costs& costs) {
    return !costs.topology.empty() || costs.transfers != Transfers::kAsynchronous;
  }

  // Both arguments must outlive this object.
  MessageExchange(const Costs& costs, const std::vector<LaneState>& ranks)
      : transfers_(costs.transfers),
        ranks_(ranks),
        network_(costs, static_cast<int>(ranks.size())),
        unfinished_(ranks.size()) {}

  void Clear() {
    network_.Clear();
    offers_.clear();
    unfinished_.assign(unfinished_.size(), 0);
  }

  // The sender has the message from its time on.
  void Send(const Network::Message& message) {
    if (transfers_ != Transfers::kAsynchronous) ++unfinished_[Index(message.from)];
    if (transfers_ != Transfers::kBatched) {
      network_.Send(message);
      return;
    }
    offers_.push_back(message);
    std::push_heap(offers_.begin(), offers_.end(), Later);
  }

  // Whether ranks also wait for messages to them.
  bool HoldsReceivers() const { return transfers_ == Transfers::kBatched; }
  // Whether the rank must wait until messages have arrived.
  bool Blocks(int rank) const { return unfinished_[Index(rank)] > 0; }

  double NextEvent() {
    const double event = network_.NextEvent();
    return offers_.empty() ? event : std::min(event, offers_.front().time);
  }
  // Processes the next event. Returns a message that has arrived, if it is an arrival.
  std::optional<Network::Message> Advance() {
    if (!offers_.empty() && offers_.front().time <= network_.NextEvent()) {
      Accept();
      return std::nullopt;
    }
    const std::optional<Network::Message> arrived = network_.Advance();
    if (!arrived) return arrived;
    if (transfers_ != Transfers::kAsynchronous) --unfinished_[Index(arrived->from)];
    if (transfers_ == Transfers::kBatched) --unfinished_[Index(arrived->to)];
    return arrived;
  }

 private:
  // Puts the earliest message first in a heap.
  static bool Later(const Network::Message& a, const Network::Message& b) {
    return a.time != b.time ? a.time > b.time : a.key > b.key;
  }

  // Sends the next offered message once its receiver is between two actions. Its clock is the end
  // of what it runs now, if anything; a rank that waits is between two actions.
  void Accept() {
    std::pop_heap(offers_.begin(), offers_.end(), Later);
    Network::Message message = offers_.back();
    offers_.pop_back();
    message.time = std::max(message.time, ranks_[Index(message.to)].clock);
    ++unfinished_[Index(message.to)];
    network_.Send(message);
  }

  const Transfers transfers_;
  const std::vector<LaneState>& ranks_;
  Network network_;
  std::vector<int> unfinished_;           // by rank: messages that it waits for
  std::vector<Network::Message> offers_;  // a heap; only of batched transfers
};

}  // namespace penstock
