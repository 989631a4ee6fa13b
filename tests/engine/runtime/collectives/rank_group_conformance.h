// The conformance suite of rank groups (rank_group_conformance.cpp). A program that contains it
// defines TestedRankGroups().
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/index.h"
#include "collective/local_group.h"
#include "runtime/collectives/rank_groups.h"
#include "tests/engine/runtime/processes/local_processes.h"

namespace penstock {

struct RankGroupCase {
  std::string name;
  // The processes of a group: at most this many. 0: no processes, but MakeLocalGroup.
  int processes = 0;
  std::function<std::vector<std::unique_ptr<ProcessGroup>>(int processes)> make_processes =
      MakeLocalProcesses;
};
// The implementations to which the suite applies.
std::vector<RankGroupCase> TestedRankGroups();

inline void PrintTo(const RankGroupCase& tested, std::ostream* out) { *out << tested.name; }

// Groups of the ranks of a run, whose ranks are dealt to the processes in turn.
class TestedGroups {
 public:
  TestedGroups(const RankGroupCase& tested, int ranks, const std::vector<RankGroupMembers>& members,
               std::chrono::milliseconds timeout = std::chrono::minutes(2)) {
    if (tested.processes == 0) {
      MakeLocal(members, timeout);
      return;
    }
    const int processes = std::min(tested.processes, ranks);
    groups_ = tested.make_processes(processes);
    std::vector<int> process_of;
    for (int rank = 0; rank < ranks; ++rank) process_of.push_back(rank % processes);
    ends_.resize(members.size());
    for (std::size_t group = 0; group < members.size(); ++group) {
      ends_[group].resize(members[group].ranks.size());
    }
    for (int process = 0; process < processes; ++process) {
      const LocalRanks local = LocalRanks::Of(process_of, processes, process).value();
      auto made = MakeRankGroups(members, local, groups_[Index(process)].get(), timeout).value();
      for (std::size_t group = 0; group < made.size(); ++group) {
        for (std::size_t rank = 0; rank < made[group].size(); ++rank) {
          if (made[group][rank]) ends_[group][rank] = std::move(made[group][rank]);
        }
      }
    }
  }

  // The end of a rank of a group.
  RankGroup& end(int rank, int group = 0) { return *ends_[Index(group)][Index(rank)]; }
  void Destroy(int rank) { ends_[0][Index(rank)].reset(); }

 private:
  void MakeLocal(const std::vector<RankGroupMembers>& members, std::chrono::milliseconds timeout) {
    for (const RankGroupMembers& each : members) {
      ends_.push_back(MakeLocalGroup(static_cast<int>(each.ranks.size()), {each.name, timeout}));
    }
  }

  std::vector<std::unique_ptr<ProcessGroup>> groups_;
  std::vector<RankGroupEnds> ends_;
};

// One group of all ranks of a run. Rank i of the group is the run's rank `ranks` - 1 - i.
class TestedGroup : public TestedGroups {
 public:
  explicit TestedGroup(const RankGroupCase& tested, int ranks,
                       std::chrono::milliseconds timeout = std::chrono::minutes(2))
      : TestedGroups(tested, ranks, {Reversed(ranks)}, timeout), ranks_(ranks) {}

  // Calls function(end) on one thread per rank, and joins the threads.
  template <class Function>
  void OnEachRank(Function&& function) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&, rank] { function(end(rank)); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static RankGroupMembers Reversed(int ranks) {
    RankGroupMembers members{"all", {}};
    for (int rank = ranks - 1; rank >= 0; --rank) members.ranks.push_back(rank);
    return members;
  }

  int ranks_;
};

class RankGroupConformance : public testing::TestWithParam<RankGroupCase> {};

}  // namespace penstock
