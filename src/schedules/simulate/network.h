// Messages in flight over the links of a topology, in order of time.
//
// A message occupies the links of its sender and its receiver until its last byte has left, and
// arrives one latency later. On each link the messages get equal parts of the bandwidth, and a
// message moves at the smaller of its two parts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/costs.h"
#include "simulate/arrivals.h"

namespace penstock {

class Network {
 public:
  struct Message {
    Arrivals::Key key = 0;
    int from = 0, to = 0;
    double time = 0;   // when it leaves; of a delivery: when it arrives
    double bytes = 0;  // only links with a bandwidth read it
    double sent = 0;   // of a delivery: when it left
  };

  // Without a topology, every message takes costs.comm and shares no link. Requires: CheckTopology
  // accepts costs.topology for these ranks.
  Network(const Costs& costs, int ranks);

  void Clear();  // forgets all messages
  // Sends a message at its time, which must not be before the last event.
  void Send(const Message& message);
  // Returns the time of the next event, or infinity if nothing is in flight.
  double NextEvent();
  // Processes the next event. Returns the message if it is an arrival.
  // Requires: NextEvent() is finite.
  std::optional<Message> Advance();

 private:
  using Id = std::uint32_t;
  enum class Phase { kSent, kOnLinks, kDrained };
  struct Transfer {
    Message message;
    Phase phase = Phase::kSent;
    std::size_t level = 0;
    std::array<std::size_t, 2> links{};  // of the sender and the receiver
    double left = 0;                     // bytes at `since`
    double since = 0;
    double rate = 0;
    std::uint32_t changes = 0;  // of the rate: an event of an earlier rate is void
  };
  struct Event {
    double time = 0;
    std::uint64_t sequence = 0;  // orders events at the same time
    Id transfer = 0;
    std::uint32_t changes = 0;
  };
  struct Link {
    double bandwidth = 0;
    std::vector<Id> transfers;
  };

  std::size_t LinkOf(std::size_t level, int rank, bool receives) const;
  void Schedule(Id id, double time);
  void DropVoidEvents();
  void Enter(Id id, double time);
  void Leave(Id id, double time);
  // Gives the transfers of a link their rates from `time` on.
  void Share(std::size_t link, double time);

  const Costs& costs_;
  std::vector<std::size_t> first_link_;  // by level
  std::vector<Link> links_;
  std::vector<Transfer> transfers_;
  std::vector<Id> unused_;     // of transfers_
  std::vector<Event> events_;  // a heap with the next event first
  std::uint64_t sequence_ = 0;
};

}  // namespace penstock
