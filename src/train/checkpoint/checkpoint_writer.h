// CheckpointWriter: checkpoints of a run under way, written while the ranks go on.
//
// A snapshot is the state of one step over all ranks: each rank copies its own part when it has
// ended the step, and a thread of the writer's own writes the file when all parts are there. One
// snapshot is under way at a time: where the next is due before it is on the disk, the ranks wait
// for that, so that which checkpoints there are does not depend on the disk's speed. They never
// wait for each other, unless ranks are on several hosts: a rank that is a whole snapshot ahead
// then waits for the others, so that all hosts write the same ones.
//
// Each host copies its own ranks' state and writes it to its place in the file (WriteTogether).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/collectives.h"
#include "train/checkpoint/checkpoint.h"

namespace penstock {

struct CheckpointWriterOptions {
  std::string folder;  // of the checkpoints; made with the first, in a folder that is there
  // Called before each file is written: an error is the snapshot's. Empty: nothing to check.
  std::function<Status()> check;
  TrainConfig config;  // what is written beside the tensors, and `checkpoint` of it
  // What each rank saves, by rank; called from the rank's thread. The same names and sizes every
  // time. Empty for ranks of other hosts.
  std::vector<std::function<NamedState()>> ranks;
  HostGroup* group = nullptr;  // null: this host runs all ranks
};

class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointWriterOptions options);
  // Waits for a snapshot that is being written; drops one whose parts are not all there.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // On a rank's thread, when it has ended its `done`-th step, `seconds` into the training. Every
  // rank calls it after every step; with `checkpoint.every` 0 it does nothing. Throws
  // std::runtime_error where an earlier snapshot could not be written.
  void AfterStep(int rank, std::int64_t done, double seconds);

  // When no rank runs: waits for the disk, and writes the state after `done` steps unless it is
  // there, whatever `checkpoint.every`. Errors: kUnavailable.
  Status Finish(std::int64_t done, double seconds);

  // Snapshots that were due while parts of another were missing. When no rank runs.
  int left_out() const { return left_out_; }

 private:
  enum class Phase { kIdle, kGathering, kWriting };

  bool several_hosts() const { return hosts_.hosts() > 1; }
  bool Join(std::int64_t done, double seconds);
  void CopyPart(int rank);
  void Arrive();
  void WriteSnapshots();
  Status Write();
  Status Prepare() const;

  const CheckpointWriterOptions options_;
  Collectives hosts_;
  int parts_ = 0;                   // of a snapshot: ranks of this host
  std::vector<NamedState> copies_;  // by rank: its thread's while gathering, else the writer's

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_. While it is not idle, `info_` does not change.
  Phase phase_ = Phase::kIdle;
  CheckpointInfo info_;
  int missing_ = 0;           // parts of the snapshot that is gathered
  std::int64_t newest_ = -1;  // that was due
  std::int64_t written_ = -1;
  int left_out_ = 0;
  Status failure_;
  bool stop_ = false;

  std::unique_ptr<Channel> aborts_;  // carries no frames; null for one host
  std::thread thread_;               // last: it uses all of the above
};

}  // namespace penstock
