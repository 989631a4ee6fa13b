// CheckpointWriter: writes checkpoints while the ranks of a run train.
//
// A snapshot is the state of one step over all ranks. Each rank copies its own part after it has
// ended the step, and a thread of the writer writes the files when all parts are copied. Only one
// snapshot is in progress at a time. If the next one is due before the files are on disk, the
// ranks wait for the disk, so that which checkpoints exist does not depend on its speed. Ranks of
// one process never wait for each other. With several processes, a rank that is a whole snapshot
// ahead waits for the other ranks, so that all processes write the same checkpoints.
//
// Each process copies the state of its own ranks and writes it to its own shard (WriteShards).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "runtime/processes/collectives.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/sample_source.h"
#include "train/run/run_context.h"

namespace penstock {

class CheckpointWriter {
 public:
  // Returns what a rank of this process saves. Called on the rank's thread. Must return the same
  // names and ranges every time. Elements that several ranks save are written once.
  using StateOf = std::function<NamedState(int rank)>;

  // The run must outlive the writer. Its configuration is stored in the checkpoints, and what it
  // has consumed of `samples`. Their folder is created with the first one. The run's own folder
  // must exist, and is checked before each.
  CheckpointWriter(const RunContext& run, std::shared_ptr<const SampleSource> samples,
                   StateOf state_of);
  // Waits for a snapshot that is being written. Discards one with missing parts.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Copies the rank's part if a checkpoint is due after `done` steps and `seconds` of training.
  // Every rank calls it on its own thread after every step. Does nothing if `checkpoint.every` is
  // 0. Throws std::runtime_error if an earlier checkpoint could not be written.
  void AfterStep(int rank, std::int64_t done, double seconds);

  // Waits for the disk, then writes the state after `done` steps unless its checkpoint exists,
  // regardless of `checkpoint.every`. Requires: no rank is running. Errors: kUnavailable.
  Status Finish(std::int64_t done, double seconds);

  // Marks the state after `done` steps as the best one so far, regardless of `checkpoint.every`: it
  // is copied now unless it was copied already, written in the background, and kept until there is
  // a better one. Requires: no rank is running. Errors: kUnavailable.
  Status KeepBest(std::int64_t done, double seconds);

  // Returns the number of snapshots that were skipped because parts of another one were missing.
  int skipped();

 private:
  enum class Phase { kIdle, kCopying, kWriting };

  bool several_processes() const { return processes_.processes() > 1; }
  // Returns whether the rank must copy its part of this step. The first rank that ends the step
  // decides for all.
  bool Join(std::int64_t done, double seconds);
  bool MustWait(std::int64_t done) const PENSTOCK_REQUIRES(mutex_);
  void CopyPart(int rank);
  void CopyAll(std::int64_t done, double seconds);
  // Makes the link to the best checkpoint if that has been written and has none yet.
  Status LinkIfBest() PENSTOCK_REQUIRES(mutex_);
  // Counts a copied part. The last one starts the writing.
  void Arrive();
  void WriteSnapshots();
  Status Write(const CheckpointInfo& info);
  Status Prepare() const;

  const RunContext& run_;
  const std::shared_ptr<const SampleSource> samples_;
  const StateOf state_of_;
  const std::string folder_;
  Collectives processes_;  // of the writer's thread
  // By rank. Used by the rank's thread while copying, else by the writer's thread.
  std::vector<NamedState> copies_;

  Mutex mutex_;
  CondVar changed_;
  Phase phase_ PENSTOCK_GUARDED_BY(mutex_) = Phase::kIdle;
  CheckpointInfo info_ PENSTOCK_GUARDED_BY(mutex_);       // of the snapshot in progress
  int missing_ PENSTOCK_GUARDED_BY(mutex_) = 0;           // parts that are not copied yet
  std::int64_t newest_ PENSTOCK_GUARDED_BY(mutex_) = -1;  // step that was due last
  std::int64_t written_ PENSTOCK_GUARDED_BY(mutex_) = -1;
  std::int64_t best_ PENSTOCK_GUARDED_BY(mutex_) = -1;  // step to link to
  int skipped_ PENSTOCK_GUARDED_BY(mutex_) = 0;
  Status failure_ PENSTOCK_GUARDED_BY(mutex_);
  bool stop_ PENSTOCK_GUARDED_BY(mutex_) = false;

  std::unique_ptr<Channel> aborts_;  // carries no frames; null for one process
  std::thread thread_;               // last, because it uses the other members
};

}  // namespace penstock
