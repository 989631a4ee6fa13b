// The conformance suite of transports (transport_conformance.cpp). A program that contains it
// defines TestedTransports().
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/hosts/local_hosts.h"
#include "runtime/transports/transports.h"
#include "tests/runtime/random_schedule.h"

namespace penstock {

using MakeHosts = std::function<std::vector<std::unique_ptr<HostGroup>>(int hosts)>;

struct TransportCase {
  std::string name;  // in TransportKinds()
  int hosts;         // of the two ranks: 1 or 2
  MakeHosts make_hosts = MakeLocalHosts;
  std::string connected_by = "";  // distinguishes cases of one name
};
// The transports to which the suite applies.
std::vector<TransportCase> TestedTransports();

inline void PrintTo(const TransportCase& tested, std::ostream* out) {
  *out << tested.name << " on " << tested.hosts << " " << tested.connected_by;
}

// Two ranks with `slots` slots per direction, and the transport's end for each rank.
class TwoRanks {
 public:
  explicit TwoRanks(const TransportCase& tested, int slots = 2)
      : schedule_(SmallGpipe(2, slots)), messages_(schedule_) {
    groups_ = tested.make_hosts(tested.hosts);
    for (int host = 0; host < tested.hosts; ++host) {
      ranks_.push_back(HostedRanks::Split(2, tested.hosts, host).value());
      const TransportParams params{messages_, ranks_.back(), groups_[host].get()};
      ends_.push_back(MakeTransport(tested.name, params).value());
    }
  }

  // Returns the rank's end. Ranks of one host share it.
  Transport& end(int rank) { return rank == 0 ? *ends_.front() : *ends_.back(); }
  // Slots of messages from rank 0 to rank 1, and back.
  int There(int i) const { return messages_.Slot({ValueKind::kActivation, 0, i}); }
  int Back(int i) const { return messages_.Slot({ValueKind::kGradient, 1, i}); }

  // Destroys the host of rank 1, as if its process had ended.
  void EndLastHost() {
    ends_.pop_back();
    groups_.pop_back();
  }

 private:
  Schedule schedule_;
  MessageMap messages_;
  std::vector<std::unique_ptr<HostGroup>> groups_;
  std::vector<HostedRanks> ranks_;
  std::vector<std::unique_ptr<Transport>> ends_;
};

class TransportConformance : public testing::TestWithParam<TransportCase> {};
// Tests that apply only to transports between hosts.
class RemoteTransportConformance : public testing::TestWithParam<TransportCase> {};

}  // namespace penstock
