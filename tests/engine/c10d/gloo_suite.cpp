// The suites over groups of torch.distributed that Python makes (gloo_test.py), in a library that
// it loads.
#include <gtest/gtest.h>

#include "tests/engine/runtime/collectives/rank_group_conformance.h"
#include "tests/engine/runtime/transports/transport_conformance.h"
#include "train/c10d/c10d_process_group.h"

namespace penstock {
namespace {

// Makes the groups of so many processes. The one from `a` to `b` has two ends, with the names
// NUMBER/a/b/sender and NUMBER/a/b/receiver. Returns the number.
int (*make_groups)(int processes) = nullptr;

std::vector<std::unique_ptr<ProcessGroup>> OverGloo(int processes) {
  const std::string number = std::to_string(make_groups(processes));
  const auto edge = [&](int from, int to, const char* end) {
    return number + "/" + std::to_string(from) + "/" + std::to_string(to) + "/" + end;
  };
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (int process = 0; process < processes; ++process) {
    std::vector<std::string> to, from;
    for (int other = 0; other < processes; ++other) {
      to.push_back(edge(process, other, "sender"));
      from.push_back(edge(other, process, "receiver"));
    }
    C10dPlace place = FindC10dPlace(process, to, from).value();
    place.patience = std::chrono::milliseconds(100);  // the next process ends after this one
    groups.push_back(MakeC10dProcessGroup(std::move(place)));
  }
  return groups;
}

}  // namespace

std::vector<TransportCase> TestedTransports() { return {{"processes", 2, OverGloo, "gloo"}}; }
std::vector<RankGroupCase> TestedRankGroups() { return {{"Gloo", 2, OverGloo}}; }

}  // namespace penstock

// Runs the suites. Returns 0 if all tests pass.
extern "C" int penstock_run_suite(int (*make_groups)(int), const char* filter) {
  penstock::make_groups = make_groups;
  int count = 1;
  char name[] = "gloo";
  char* words[] = {name, nullptr};
  testing::InitGoogleTest(&count, words);
  testing::GTEST_FLAG(filter) = filter;
  testing::GTEST_FLAG(brief) = true;
  return RUN_ALL_TESTS();
}
