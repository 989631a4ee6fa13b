#include "simulate/network.h"

#include <algorithm>
#include <limits>

#include "base/index.h"

namespace penstock {
namespace {

// Puts the earliest event first in a heap.
constexpr auto kLater = [](const auto& a, const auto& b) {
  return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
};

}  // namespace

Network::Network(const Costs& costs, int ranks) : costs_(costs) {
  const Topology& topology = costs.topology;
  for (std::size_t level = 0; level < topology.levels.size(); ++level) {
    first_link_.push_back(links_.size());
    const std::size_t owners = Index(topology.OwnerOf(level, ranks - 1)) + 1;
    links_.resize(links_.size() + 2 * owners, {topology.levels[level].bandwidth, {}});
  }
}

void Network::Clear() {
  for (Link& link : links_) link.transfers.clear();
  transfers_.clear();
  unused_.clear();
  events_.clear();
}

std::size_t Network::LinkOf(std::size_t level, int rank, bool receives) const {
  const bool second = receives && !costs_.topology.levels[level].half_duplex;
  return first_link_[level] + 2 * Index(costs_.topology.OwnerOf(level, rank)) + (second ? 1 : 0);
}

void Network::Send(const Message& message) {
  if (unused_.empty()) {
    unused_.push_back(static_cast<Id>(transfers_.size()));
    transfers_.emplace_back();
  }
  const Id id = unused_.back();
  unused_.pop_back();
  Transfer& transfer = transfers_[id];
  transfer.message = message;
  transfer.message.sent = message.time;
  transfer.phase = Phase::kSent;
  if (costs_.topology.empty()) {
    transfer.phase = Phase::kDrained;
    Schedule(id, message.time + costs_.comm);
    return;
  }
  transfer.level = costs_.topology.LevelOf(message.from, message.to);
  const LinkLevel& level = costs_.topology.levels[transfer.level];
  if (level.bandwidth == 0 || message.bytes == 0) {
    transfer.phase = Phase::kDrained;
    Schedule(id, message.time + level.latency);
    return;
  }
  transfer.links = {LinkOf(transfer.level, message.from, false),
                    LinkOf(transfer.level, message.to, true)};
  Schedule(id, message.time);
}

void Network::Schedule(Id id, double time) {
  events_.push_back({time, sequence_++, id, transfers_[id].changes});
  std::push_heap(events_.begin(), events_.end(), kLater);
}

void Network::DropVoidEvents() {
  while (!events_.empty() &&
         events_.front().changes != transfers_[events_.front().transfer].changes) {
    std::pop_heap(events_.begin(), events_.end(), kLater);
    events_.pop_back();
  }
}

double Network::NextEvent() {
  DropVoidEvents();
  return events_.empty() ? std::numeric_limits<double>::infinity() : events_.front().time;
}

std::optional<Network::Message> Network::Advance() {
  DropVoidEvents();
  std::pop_heap(events_.begin(), events_.end(), kLater);
  const Event event = events_.back();
  events_.pop_back();
  Transfer& transfer = transfers_[event.transfer];
  if (transfer.phase == Phase::kSent) {
    Enter(event.transfer, event.time);
    return std::nullopt;
  }
  if (transfer.phase == Phase::kOnLinks) {
    Leave(event.transfer, event.time);
    return std::nullopt;
  }
  unused_.push_back(event.transfer);
  Message arrived = transfer.message;
  arrived.time = event.time;
  return arrived;
}

void Network::Enter(Id id, double time) {
  Transfer& transfer = transfers_[id];
  transfer.phase = Phase::kOnLinks;
  transfer.left = transfer.message.bytes;
  transfer.since = time;
  transfer.rate = 0;
  const auto [out, in] = transfer.links;
  links_[out].transfers.push_back(id);
  if (in != out) links_[in].transfers.push_back(id);
  Share(out, time);
  if (in != out) Share(in, time);
}

void Network::Leave(Id id, double time) {
  Transfer& transfer = transfers_[id];
  transfer.phase = Phase::kDrained;
  ++transfer.changes;
  const auto [out, in] = transfer.links;
  std::erase(links_[out].transfers, id);
  if (in != out) std::erase(links_[in].transfers, id);
  Share(out, time);
  if (in != out) Share(in, time);
  Schedule(id, time + costs_.topology.levels[transfer.level].latency);
}

void Network::Share(std::size_t link, double time) {
  for (const Id id : links_[link].transfers) {
    Transfer& transfer = transfers_[id];
    double rate = std::numeric_limits<double>::infinity();
    for (const std::size_t used : transfer.links) {
      const Link& shared = links_[used];
      rate = std::min(rate, shared.bandwidth / static_cast<double>(shared.transfers.size()));
    }
    if (rate == transfer.rate) continue;
    transfer.left = std::max(0.0, transfer.left - transfer.rate * (time - transfer.since));
    transfer.since = time;
    transfer.rate = rate;
    ++transfer.changes;
    Schedule(id, time + transfer.left / rate);
  }
}

}  // namespace penstock
