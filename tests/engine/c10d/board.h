// Board: a backend of c10d within one process, for tests. What one end sends, the other one gets.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "runtime/processes/process_group.h"
#include "train/c10d/c10d_process_group.h"

namespace penstock {

// One direction between two processes.
class Board {
 public:
  void Put(at::Tensor tensor) {
    const MutexLock lock(mutex_);
    tensors_.push_back(std::move(tensor));
    changed_.NotifyAll();
  }
  // Returns an undefined tensor if `aborted` becomes true. Throws after the timeout.
  at::Tensor Take(std::chrono::milliseconds timeout, const std::atomic<bool>& aborted) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    MutexLock lock(mutex_);
    while (tensors_.empty() && !aborted) {
      if (!changed_.WaitUntil(lock, deadline)) throw std::runtime_error("timeout");
    }
    if (aborted) return {};
    at::Tensor taken = std::move(tensors_.front());
    tensors_.pop_front();
    return taken;
  }
  void Wake() {
    const MutexLock lock(mutex_);
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<at::Tensor> tensors_ PENSTOCK_GUARDED_BY(mutex_);
};

class BoardWork final : public c10d::Work {
 public:
  BoardWork(std::shared_ptr<Board> board, at::Tensor to)
      : board_(std::move(board)), to_(std::move(to)) {}

  bool isCompleted() override { return !to_.defined(); }
  bool isSuccess() const override { return true; }
  void abort() override {
    aborted_ = true;
    board_->Wake();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    if (!to_.defined()) return true;
    if (timeout.count() == 0) timeout = std::chrono::minutes(1);
    const at::Tensor sent = board_->Take(timeout, aborted_);
    if (!sent.defined()) return false;
    to_.copy_(sent);
    to_.reset();
    return true;
  }

 private:
  const std::shared_ptr<Board> board_;
  at::Tensor to_;  // undefined for a send
  std::atomic<bool> aborted_{false};
};

class BoardBackend final : public c10d::Backend {
 public:
  BoardBackend(std::shared_ptr<Board> board, int rank)
      : Backend(rank, 2), board_(std::move(board)) {}

  const std::string getBackendName() const override { return "board"; }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int /*to*/,
                                      int /*tag*/) override {
    board_->Put(tensors.front().cpu().clone());
    return c10::make_intrusive<BoardWork>(board_, at::Tensor());
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int /*from*/,
                                      int /*tag*/) override {
    return c10::make_intrusive<BoardWork>(board_, tensors.front());
  }

 private:
  const std::shared_ptr<Board> board_;
};

// The two ends of an edge from one process to another, the sender's first.
inline std::pair<C10dGroup, C10dGroup> MakeEdge(bool to_higher, c10::Device device) {
  const auto end = [&](int rank, const auto& boards) {
    auto group =
        c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), rank, 2);
    const auto add = [&](c10::DeviceType type, const std::shared_ptr<Board>& board) {
      group->setBackend(type, c10d::ProcessGroup::BackendType::CUSTOM,
                        c10::make_intrusive<BoardBackend>(board, rank));
    };
    add(c10::kCPU, boards.first);
    if (!device.is_cpu()) add(device.type(), boards.second);
    return group;
  };
  const std::pair boards = {std::make_shared<Board>(), std::make_shared<Board>()};
  return {end(to_higher ? 0 : 1, boards), end(to_higher ? 1 : 0, boards)};
}

// Emulated processes of this one, which are connected by boards.
inline std::vector<std::unique_ptr<ProcessGroup>> MakeC10dLoopback(int processes,
                                                                   c10::Device device = c10::kCPU) {
  std::vector<C10dPlace> places(static_cast<std::size_t>(processes));
  for (int process = 0; process < processes; ++process) {
    C10dPlace& place = places[static_cast<std::size_t>(process)];
    place.process = process;
    place.device = device;
    place.patience = std::chrono::milliseconds(100);  // the next process ends after this one
    place.to.resize(places.size());
    place.from.resize(places.size());
  }
  for (std::size_t from = 0; from < places.size(); ++from) {
    for (std::size_t to = 0; to < places.size(); ++to) {
      if (from == to) continue;
      auto [sender, receiver] = MakeEdge(to > from, device);
      places[from].to[to] = std::move(sender);
      places[to].from[from] = std::move(receiver);
    }
  }
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (C10dPlace& place : places) groups.push_back(MakeC10dProcessGroup(std::move(place)));
  return groups;
}

}  // namespace penstock
