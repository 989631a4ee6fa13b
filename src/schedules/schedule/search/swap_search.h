// Local search by swaps of adjacent actions on the critical path, for short makespans.
//
// Each action has a head, the time of its start, and a tail, the time from its end to the end of
// the schedule that follows from the orders of all lanes. With both, the longest path through two
// swapped actions is known without a simulation: the estimate of job-shop scheduling (Taillard
// 1994; Nowicki and Smutnicki 1996). Of all swaps on a critical path, the one with the lowest
// estimate is made, even if the schedule gets longer, and not undone for some moves (tabu search).
//
// Threads: one object, one thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/patterns/pattern_sampler.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

class SwapSearch {
 public:
  // Requires: split, no slices, one chain.
  explicit SwapSearch(const Problem& problem);

  // Makes up to `moves` swaps, until the makespan is `enough` or nothing better has been found for
  // `patience` moves. Returns the shortest lanes found, those given if none is shorter.
  // Requires: the lanes run without deadlock within the problem's memory limit.
  std::vector<Lane> Run(const std::vector<Lane>& lanes, double moves, double patience,
                        double enough);

  // The makespan of the lanes that Run returned, and the number of its moves.
  double makespan() const { return best_makespan_; }
  double moves() const { return moves_; }

 private:
  enum Kind { kF, kI, kW, kKinds };

  // One action. Inputs of its own rank come before it in its lane.
  struct Node {
    int rank = 0;
    double duration = 0;
    double allocated = 0;                    // at its start; negative: freed at its end
    int input = -1, reader = -1;             // on other ranks
    double input_comm = 0, reader_comm = 0;  // times of the messages from and to these
    double head = 0, tail = 0;               // to its start, and from its end
    std::size_t position = 0;                // in its lane
    double held = 0;                         // on its rank before it
  };

  int IdOf(const Part& part) const;
  Action ActionOf(int id) const;
  void Load(const std::vector<Lane>& lanes);
  std::vector<Lane> Lanes() const;
  void Evaluate();
  double ArrivalOf(const Node& node) const;
  double TailAfter(const Node& node) const;
  int Before(const Node& node) const;
  int After(const Node& node) const;
  bool MayOvertake(int first, int second) const;
  double Estimate(int first, int second) const;
  int ChooseMove();
  void Swap(int second);

  const Problem problem_;
  double slack_ = 0;
  double memory_limit_ = 0;
  std::vector<Node> nodes_;              // by stage, microbatch and kind
  std::vector<std::vector<int>> lanes_;  // ids
  std::vector<int> order_;               // all ids, each after what it waits for
  std::vector<std::size_t> next_;        // by rank: the position that Evaluate has reached
  std::vector<int> awake_;               // ranks that can continue
  std::vector<char> known_;              // by id: whether Evaluate has passed it
  double makespan_ = 0, best_makespan_ = 0;
  double moves_ = 0;
  std::unordered_map<std::uint64_t, double> tabu_;  // by swap: until which move
  Rng rng_;
};

}  // namespace penstock
