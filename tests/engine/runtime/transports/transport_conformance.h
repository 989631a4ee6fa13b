// The conformance suite of transports (transport_conformance.cpp). A program that contains it
// defines TestedTransports().
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/transports/transports.h"
#include "tests/engine/runtime/processes/local_processes.h"
#include "tests/engine/runtime/random_schedule.h"

namespace penstock {

using MakeProcesses = std::function<std::vector<std::unique_ptr<ProcessGroup>>(int processes)>;

struct TransportCase {
  std::string name;  // in TransportKinds()
  int processes;     // of the two ranks: 1 or 2
  MakeProcesses make_processes = MakeLocalProcesses;
  std::string connected_by = "";  // distinguishes cases of one name
};
// The transports to which the suite applies.
std::vector<TransportCase> TestedTransports();

inline void PrintTo(const TransportCase& tested, std::ostream* out) {
  *out << tested.name << " on " << tested.processes << " " << tested.connected_by;
}

// Two ranks with `slots` slots per direction, and the transport's end for each rank.
class TwoRanks {
 public:
  explicit TwoRanks(const TransportCase& tested, int slots = 2)
      : schedule_(SmallGpipe(2, slots)), messages_(schedule_) {
    groups_ = tested.make_processes(tested.processes);
    for (int process = 0; process < tested.processes; ++process) {
      ranks_.push_back(LocalRanks::Split(2, tested.processes, process).value());
      const TransportParams params{messages_, ranks_.back(), groups_[process].get()};
      ends_.push_back(MakeTransport(tested.name, params).value());
    }
  }

  // Returns the rank's end. Ranks of one process share it.
  Transport& end(int rank) { return rank == 0 ? *ends_.front() : *ends_.back(); }
  // Slots of messages from rank 0 to rank 1, and back.
  int There(int i) const { return messages_.Slot({ValueKind::kActivation, 0, i}); }
  int Back(int i) const { return messages_.Slot({ValueKind::kGradient, 1, i}); }

  // Destroys the process of rank 1, as if it had ended.
  void EndLastProcess() {
    ends_.pop_back();
    groups_.pop_back();
  }

 private:
  Schedule schedule_;
  MessageMap messages_;
  std::vector<std::unique_ptr<ProcessGroup>> groups_;
  std::vector<LocalRanks> ranks_;
  std::vector<std::unique_ptr<Transport>> ends_;
};

class TransportConformance : public testing::TestWithParam<TransportCase> {};
// Tests that apply only to transports between processes.
class RemoteTransportConformance : public testing::TestWithParam<TransportCase> {};

}  // namespace penstock
