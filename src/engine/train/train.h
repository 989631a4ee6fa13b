// Training runs: from a configuration to a trained model and its files. No torch here.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "collective/collective_count.h"
#include "config/train_config.h"
#include "runtime/processes/process_group.h"

namespace penstock {

// The figures of one rank in a step: medians of the run's last steps, in seconds and bytes.
struct RankSummary {
  double busy = 0;
  double bubble = 0;  // idle share of the step's makespan
  std::int64_t peak_activation_bytes = 0;
  double predicted_busy = 0;
  double predicted_bubble = 0;
  std::int64_t predicted_peak_activation_bytes = 0;
};

struct TrainSummary {
  // Whether a stop was requested before the run was complete. The following fields may then be
  // unset.
  bool interrupted = false;
  std::int64_t steps = 0;          // done
  std::int64_t planned_steps = 0;  // in total
  std::string saved;               // the checkpoint to continue from; empty if no step was run

  std::string unit = "byte";  // what a token is: "byte" or "token"
  double held_out_loss = 0;   // nats per unit
  double baseline_loss = 0;   // of the bigram model on the same bytes; 0 for other tokens
  double tokens_per_second = 0;
  double step_time = 0;            // seconds
  double predicted_step_time = 0;  // by the simulator, from the run's median action times
  int ranks = 0;
  std::vector<RankSummary> per_rank;
  // By stage of this process that communicates within its actions.
  std::vector<std::pair<int, CollectivesOfStage>> collectives;
  std::vector<std::string> files;
  std::string passage;  // generated text
  std::string drift;    // the action and the rank that took longest over their prediction
  std::string table;    // predicted and measured figures per rank, as text
};

struct TrainOptions {
  std::FILE* log = stdout;
  // Set it, in a signal handler for example, to end the run early with a checkpoint: after the
  // current step, or where the pipeline next drains if the schedule does not flush. May be null.
  const std::atomic<bool>* stop = nullptr;
  // Set it, in a signal handler for example, to write the timeline of the step that ends next as
  // trace-step-N.json in the run's folder. The run resets it. On several processes, either all or
  // none have it; any of them may be set. May be null.
  std::atomic<bool>* trace_request = nullptr;
  // Called with the reason if the run has failed but a rank does not return from its stage. The
  // program can only print it and exit. If empty, Train waits for the rank.
  std::function<void(const Error& reason)> on_stuck = {};

  // The processes that train together. Each calls Train for its own ranks, with the same
  // configuration and a folder that all of them see. A failure on any process aborts the group and
  // ends the run on all. Null: this process trains alone.
  ProcessGroup* group = nullptr;
  // By rank of the mesh of all planes (MeshOfPlanes); empty: each process runs about the same
  // number of ranks.
  std::vector<int> process_of = {};
  int cores = 0;  // that this process may use; 0: all cores of the machine
};

// Trains a model and writes the run's files to config.folder/config.name, which it locks. After an
// error, the files that were complete by then remain. On several processes, process 0 writes the
// log and the files, and each process writes its part of the weights and its shards of checkpoints.
// The summaries of other processes have only the fields before `baseline_loss`, and the passage.
// Threads: only one run at a time in a process. Sets torch's number of threads. Errors:
// kInvalidArgument and kNotFound before the first step, also if another run uses the folder.
// kUnavailable if a stage or a file fails, if a loss is not finite, or if too many steps were
// skipped (CheckSkipped). kDeadlineExceeded if ranks are stuck.
Result<TrainSummary> Train(const TrainConfig& config, const TrainOptions& options);

struct EvalSummary {
  std::string unit = "byte";  // as in TrainSummary
  double held_out_loss = 0;
  double baseline_loss = 0;
  std::int64_t predicted = 0;      // units
  std::int64_t step = 0;           // of the checkpoint
  std::string tokenizer;           // its file, or "bytes"
  std::vector<std::string> notes;  // lines for the user about the weights
};
// Computes the held-out loss of a checkpoint: a file or a folder, see CheckpointAt. `data`
// replaces the configured text if not empty; the tokenizer is the run's. With `ema`, here and
// below, uses the moving averages of the weights, which only the checkpoints of a run with
// optimizer.ema have. `device` is where it computes, as TrainConfig::device.
Result<EvalSummary> Evaluate(const std::string& checkpoint, const std::string& data = {},
                             bool ema = false, const std::string& device = "cpu");
// Computes the loss of a model in Hugging Face's format on all of a text, of the texts below a
// folder, or of a tokenized folder, in windows of `sequence` tokens of the model folder's
// tokenizer, or bytes if it has none. 0: 128, or as many as the model has positions if it has
// fewer. The baseline is 0. Errors, here and above: kUnavailable if weights or the loss are not
// finite.
Result<EvalSummary> EvaluateHuggingFace(const std::string& folder, const std::string& data,
                                        std::int64_t sequence, const std::string& device = "cpu");
// Writes a checkpoint's model in Hugging Face's format: config.json, model.safetensors and the
// files of the run's tokenizer. Returns the paths.
Result<std::vector<std::string>> ExportHuggingFace(const std::string& checkpoint,
                                                   const std::string& folder, bool ema = false);

struct GenerateOptions {
  std::string prompt = {};
  int tokens = 300;
  double temperature = 0.8;  // 0: always the most likely token
  int top_k = 0;             // only the k most likely tokens; 0: all
  double top_p = 1;          // only the most likely tokens whose probabilities add up to this
  std::uint64_t seed = 1;
  bool ema = false;
  std::string device = "cpu";  // where it computes, as TrainConfig::device
};
struct GeneratedText {
  std::string text;                // without the prompt
  std::string tokenizer;           // its file, or "bytes"
  std::vector<std::string> notes;  // lines for the user about the weights
};
// Generates text with a checkpoint's model, or with one in Hugging Face's format. It ends at a
// token that the folder's generation_config.json or config.json names, else at the tokenizer's end
// of text. Errors: kUnavailable if the model's output is not finite.
Result<GeneratedText> GenerateText(const std::string& checkpoint, const GenerateOptions& options);

}  // namespace penstock
