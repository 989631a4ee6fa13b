// Training runs: from a configuration to a trained model and its files. No torch here.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/host_group.h"
#include "train/config.h"

namespace penstock {

// One rank, a step: seconds and bytes, medians of the run's last steps.
struct RankSummary {
  double busy = 0;
  double bubble = 0;  // idle share of the step's makespan
  std::int64_t peak_activation_bytes = 0;
  double predicted_busy = 0;
  double predicted_bubble = 0;
  std::int64_t predicted_peak_activation_bytes = 0;
};

struct TrainSummary {
  // Set where a stop was requested before all was done. The fields after it may then be unset.
  bool interrupted = false;
  std::int64_t steps = 0;          // of the run that are done
  std::int64_t planned_steps = 0;  // of the run in all
  std::string saved;               // the file to continue from; empty where no step was run

  double held_out_loss = 0;  // nats per byte
  double baseline_loss = 0;  // of the bigram on the same bytes
  double tokens_per_second = 0;
  double step_time = 0;            // seconds
  double predicted_step_time = 0;  // by the simulator, from the run's median action times
  int ranks = 0;
  std::vector<RankSummary> per_rank;
  std::vector<std::string> files;
  std::string passage;  // what the model wrote
  std::string drift;    // which action and which rank took longer than planned
  std::string table;    // predicted against measured, by rank, as text
};

struct TrainOptions {
  std::FILE* log = stdout;  // the configuration and the progress
  // Set (by a signal handler, say) to end the run early: after the step at hand, with a checkpoint.
  // A schedule that does not flush ends where its pipeline is next empty.
  const std::atomic<bool>* stop = nullptr;
  // Called with the reason where the run has failed but a rank does not return from its stage: all
  // a program can do is print it and exit. Train waits for the rank where it is not set.
  std::function<void(const Error& reason)> on_stuck;

  // The hosts that train together: each calls Train for its own ranks, with the same configuration
  // and a folder that all of them see. Null: this process trains alone. A failure on any host
  // aborts the group and ends the run on all.
  HostGroup* group = nullptr;
  std::vector<int> host_of;  // by rank; empty: each host runs about the same number of ranks
  int cores = 0;             // that this host may use; 0: all of the machine's
};

// Trains and leaves the run's files in config.folder/config.name, which it locks. On an error only
// those that are complete so far: configuration, schedule, metrics, checkpoints, and the weights if
// the last step is done. Threads: one run at a time in a process; sets torch's number of threads.
// Errors: kInvalidArgument and kNotFound before anything runs, also where another run holds the
// folder; kUnavailable where a stage or a file fails, where a loss is not finite, or where too many
// steps were skipped (CheckSkipped); kDeadlineExceeded where ranks are stuck.
// On several hosts, host 0 writes the log and the files, and each host its part of the weights. The
// summaries of other hosts hold no more than what is above `baseline_loss`, and the passage.
Result<TrainSummary> Train(const TrainConfig& config, const TrainOptions& options);

// The held-out loss of a checkpoint (its file or a folder, see ReadCheckpoint); `data` in place of
// the text it was trained on.
struct EvalSummary {
  double held_out_loss = 0;
  double baseline_loss = 0;
  std::int64_t bytes = 0;  // that were predicted
  std::int64_t step = 0;   // of the checkpoint
};
Result<EvalSummary> Evaluate(const std::string& checkpoint, const std::string& data = {});

// Text that a checkpoint's model writes.
struct GenerateOptions {
  std::string prompt;
  int bytes = 300;
  double temperature = 0.8;
  std::uint64_t seed = 1;
};
Result<std::string> GenerateText(const std::string& checkpoint, const GenerateOptions& options);

}  // namespace penstock
