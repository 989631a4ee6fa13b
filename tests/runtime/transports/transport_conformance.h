// What every transport must do, as tests over any of them: INSTANTIATE_TEST_SUITE_P in
// transports_test.cpp names those that there are.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/hosts/local_hosts.h"
#include "runtime/transports/transports.h"
#include "tests/runtime/random_schedule.h"

namespace penstock {

struct TransportCase {
  std::string name;  // in TransportKinds()
  int hosts;         // that two ranks are on: 1 or 2
};
inline void PrintTo(const TransportCase& tested, std::ostream* out) {
  *out << tested.name << " on " << tested.hosts;
}

// Two ranks with `slots` slots for each direction, and the transport's end for each of them.
class TwoRanks {
 public:
  explicit TwoRanks(const TransportCase& tested, int slots = 2)
      : schedule_(SmallGpipe(2, slots)), messages_(schedule_) {
    groups_ = MakeLocalHosts(tested.hosts);
    for (int host = 0; host < tested.hosts; ++host) {
      ranks_.push_back(HostedRanks::Split(2, tested.hosts, host).value());
      const TransportParams params{messages_, ranks_.back(), groups_[host].get()};
      ends_.push_back(MakeTransport(tested.name, params).value());
    }
  }

  // The rank's end; the same one for both on one host.
  Transport& end(int rank) { return rank == 0 ? *ends_.front() : *ends_.back(); }
  // Slots of messages from rank 0 to rank 1, and back.
  int There(int i) const { return messages_.Slot({ValueKind::kActivation, 0, i}); }
  int Back(int i) const { return messages_.Slot({ValueKind::kGradient, 1, i}); }

  // Rank 1's host ends, as if its process had.
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
// Those between hosts alone.
class RemoteTransportConformance : public testing::TestWithParam<TransportCase> {};

}  // namespace penstock
