// UpdateExchange: what ranks tell each other before weights change: gradients of replicas, and the
// norm of all gradients. One a rank, over any transport.
//
// Replicas: a stage's gradients go to its replicas in the other chains as soon as they are whole;
// before its step the stage adds up those of all chains, in the order of the chains, so that all
// replicas have the same sum to the last bit and stay equal.
// Shared parameters: the gradient of each goes from every stage that holds a copy to the others,
// and each adds up all in the order of the stages; the copies stay equal to the last bit. Norm:
// each rank sends the squared norms of its stages' gradients, one a parameter, to the rank of the
// last stage, which is the first to need the verdict. That one adds them in the order of the model,
// chain 0's alone, and sends the sum to all: the same for every placement. Threads: its rank's one.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program.h"
#include "runtime/stage.h"
#include "runtime/transport.h"
#include "runtime/update/update.h"

namespace penstock {

class UpdateExchange {
 public:
  // All of it must outlive the exchange. `stages` by stage number; those of other ranks may be
  // null.
  struct Place {
    const Schedule* schedule = nullptr;
    int rank = 0;
    std::span<Stage* const> stages;
    Transport* transport = nullptr;
  };
  UpdateExchange(const Place& place, const UpdateRule& rule);

  // Below, `round` counts updates from 0; false means that the transport was aborted.

  // Sends the stage's gradients to its replicas. Never waits.
  void ShareGradients(int stage, std::int64_t round);
  // Waits for the gradients of the stage's replicas and adds them to its own.
  [[nodiscard]] bool AddGradients(int stage, std::int64_t round);
  // The same for the parameters that the stage shares with others of its chain.
  void ShareParameters(int stage, std::int64_t round);
  [[nodiscard]] bool AddParameters(int stage, std::int64_t round);
  // Notes the norms of the stage's gradients, which are whole and added.
  void Measure(int stage);
  // Sends what was noted for the rank's stages. Never waits.
  void TellNorms(std::int64_t round);
  // Waits for the verdict; on the rank of the last stage also for the norms of all others.
  [[nodiscard]] bool Agree(std::int64_t round, Verdict& verdict);

  // The slot that is waited for, -1 for none. Any thread.
  int waits_for() const { return waits_for_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] bool Receive(int slot, std::int64_t round, Message& message);
  [[nodiscard]] bool GatherNorms(std::int64_t round, double& squared_norm);
  void TakeNorms(std::span<const double> told);
  bool counts(int stage) const { return stage < place_.schedule->placement.chain_length(); }

  Place place_;
  UpdateRule rule_;
  MessageMap messages_;
  std::vector<double> told_;  // of the rank's stages that count: its number, how many, then each
  double squared_norm_ = 0;   // what the root tells
  std::vector<std::vector<double>> norms_;  // by stage; at the root
  std::atomic<int> waits_for_{-1};
};

}  // namespace penstock
