// TrainConfig: all inputs of a training run, as plain data.
//
// It is read from YAML whose sections are the members below ("model.dim"), then from key=value
// overrides. Everything about single keys derives from the table in config_fields.cpp and from the
// declarations of the configured model (model_config.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/link_speed.h"
#include "base/result.h"
#include "base/text/fields.h"
#include "model_spec/model_config.h"
#include "schedule/update_rule.h"

namespace penstock {

struct DataConfig {
  // A file or a folder of text, or a folder of 'penstock tokenize'.
  std::string path = "/usr/share/games/fortunes";
  // The tokenizer of text, see OpenTokenizer. Empty: the tokenizer of the folder of the model or
  // the weights, or of tokenized data; otherwise bytes.
  std::string tokenizer;
  std::string blend;  // several folders of 'penstock tokenize' instead of `path`, see ParseBlend
  // Tokens attend only to their own document, and their positions start at 0 in each.
  bool document_mask = false;
  // A sample is a document instead of a window of the text. Tokens per sample of each microbatch of
  // a step, repeated; shorter documents are padded. Empty: windows of model.sequence.
  std::vector<std::int64_t> lengths;
  double held_out = 0.05;  // share of the text that is never trained on
};

// The schedule and its shape. 0 and "auto" leave the choice to ChooseSchedule (setup.h).
struct PipelineConfig {
  int stages = 4;  // the total for an automatic choice of ranks and chunks
  int ranks = 0;
  int chunks = 0;
  std::string schedule = "auto";            // a name in the catalog
  std::string csv;                          // the file of a schedule, instead of `schedule`
  int microbatches = 8;                     // per step, over all replicas of the pipeline
  int slices = 1;                           // pieces of a microbatch along its sequences
  std::vector<std::int64_t> slice_lengths;  // tokens of each slice; empty: equal slices
  bool split = false;                       // backward as I and W, if the schedule has both forms
  std::vector<std::int64_t> stage_layers;   // layers of each stage; empty: as evenly as possible
  // Parameters of individual algorithms, as the options of 'penstock schedule' of the same names.
  int group = 0;            // microbatches in flight at a time; 0: the algorithm's default
  int waves = 0;            // 0: the algorithm's default
  double memory_limit = 0;  // activations of one rank and microbatch; 0: none
  std::string cost;         // "F" or "F,I,W", of one rank and microbatch; empty: 1,1,1
  double comm = 0;          // latency of a transfer, in the unit of `cost`
  std::string overlap;      // max, sum or a factor of F + B; empty: max
};

// The mesh of ranks, except for pipeline.ranks.
struct ParallelConfig {
  int data = 1;  // replicas of the pipeline; each trains on an equal share of a step's microbatches
  int zero = 0;  // what the replicas shard, see UpdateRule::zero
  int lookahead = 1;  // see ShardingOptions
  int residency = 0;
  int expert = 1;  // consecutive replicas that divide the experts of each layer
  int tensor = 1;  // ranks that divide the matrices of each layer
  // How many of these divide each expert: 1 or, as 0 also means, all. With 1, each has whole
  // experts, to which it sends its share of the tokens.
  int expert_tensor = 0;
  // Whether these ranks divide the tokens between layers, too, where they can (DividesTokens).
  bool sequence_parallel = true;
  // Whether the backward gathers again what F has gathered, instead of saving it.
  bool gather_again = false;
  int context = 1;                              // ranks that divide the tokens of each sample
  std::string context_exchange = "all-gather";  // kContextExchangeNames
  // The link between these replicas, or the tensor ranks of each, as LinkSpeed; empty: a fast one.
  std::string link = {};
  // Whether the pipeline's ranks shard the embedding, the head and the loss (Schedule::vocabulary).
  bool shard_vocabulary = false;
};

// The activations that a microbatch may keep alive: "all", "least" (as few as possible), or bytes
// with a unit. The others are recomputed when they are needed.
struct RecomputeConfig {
  std::string hold = "all";             // from the end of F to its backward
  std::string hold_for_weight = "all";  // from the end of I to W
  // The modules of a block whose values may be recomputed. If not "all", a `hold` of "all" is
  // "least".
  std::string modules = "all";
};

// Where OFFLOAD actions move activations to.
struct OffloadConfig {
  std::string pool;  // a folder for its file; empty: the run's own
};

struct OptimizerConfig {
  // "adamw", or "muon": Muon for matrices except the embedding and the head, and AdamW for the
  // rest.
  std::string name = "adamw";
  // Dtype of the gradients' sums over microbatches and replicas: f32 or bf16.
  std::string gradient_dtype = "f32";
  double lr = 3e-3;      // peak
  double lr_end = 0.05;  // final rate as a share of the peak
  int warmup = 30;       // steps from 0 to the peak
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.05;   // matrices only
  double momentum = 0.95;       // of Muon
  double balance_rate = 0.001;  // change of the biases of routers per step (model.balance=bias)
  std::string adjust_lr_fn = "match_rms_adamw";  // MuonScale
  std::string groups = {};                       // ParameterGroups as YAML; empty: none
  double ema = 0;  // decay of the exponential moving average of the weights per update; 0: none
  // Maximum global gradient norm. Larger gradients are scaled down to it. 0: no clipping.
  double clip = 0;
  // A gradient that is not finite fails the run ("fail") or skips its step ("skip").
  std::string nonfinite = "fail";
  // Stages step without waiting for the norm that clip and skip require. A step that should have
  // been clipped or skipped is rolled back bit for bit and repeated (update.h).
  bool post_validation = false;
};

// Checkpoints during a run, in the run's folder.
struct CheckpointConfig {
  std::int64_t every = 0;  // steps between checkpoints; 0: none
  int keep = 2;            // number of newest checkpoints to keep; 0: all
  bool best = false;       // also keep the one of the lowest held-out loss
};

// Evaluation during a run. The held-out loss is always computed after the last step.
struct ValidationConfig {
  std::int64_t freq = 0;  // steps between evaluations; 0: none
  int patience = 0;       // evaluations without a lower loss that end the run; 0: none do
};

struct TrainConfig {
  std::string name = "run";  // files go to `folder`/`name`
  std::string folder = "runs";
  std::uint64_t seed = 1;  // of the parameters, the batches and the sampled passage
  ModelConfig model;       // its seed is set from the one above
  DataConfig data;
  PipelineConfig pipeline;
  ParallelConfig parallel;
  RecomputeConfig recompute;
  OffloadConfig offload;
  OptimizerConfig optimizer;
  CheckpointConfig checkpoint;
  ValidationConfig validation;
  // What to resume from: a checkpoint, a folder of them or a run's folder; "auto": the newest
  // checkpoint of the run, or the first step if there is none; empty: the first step.
  std::string resume;
  std::vector<std::int64_t> trace_steps;  // steps (from 0) whose timelines are written as traces
  std::string weights;   // a folder with weights in Hugging Face's format; empty: random weights
  std::string compiled;  // a folder from 'penstock compile'; empty: stages are captured
  int batch = 4;         // samples per microbatch
  std::int64_t steps = 300;  // optimizer steps
  double seconds = 0;        // time limit for the steps; `steps` is then the maximum. 0: no limit
  int sample = 300;          // bytes of the passage generated at the end
  // Accumulates weight gradients bitwise as autograd does. False is faster: it accumulates them
  // inside the matmuls. Either way, a run is deterministic.
  bool exact = true;
  // Runs chains of pointwise ops and norms as kernels that the machine's C++ compiler compiles once
  // and that stay in the user's cache folder. With `exact`, only if results stay bitwise equal.
  bool fuse = true;
  // Dtype of the computation: f32 or bf16. Weights, updates and, unless optimizer.gradient_dtype
  // says otherwise, sums of gradients are in f32.
  std::string precision = "f32";
  // Where the ranks' tensors are and their work runs: "cpu", "cuda", "cuda:1" or another device of
  // PyTorch.
  std::string device = "cpu";
  // Starts the ops of a forward or backward by one call, as a graph of the device that was recorded
  // in an earlier step. Only on devices that have a plugin.
  bool device_graphs = false;
  // Gives each rank of this process its own part of the device's processors, in place of sharing
  // all of them. Only on devices that have a plugin.
  bool device_parts = false;
  // How data in memory of the device moves between processes: "host", through memory of the host
  // and the launcher's connection; "c10d", by the device's backend of PyTorch (NCCL), which needs a
  // plugin; or "mpi", by an MPI that accesses the device's memory.
  std::string transport = "host";
  // Limit for the estimated memory need of the run: "auto" (what is available), bytes with a unit,
  // or "none" (no check).
  std::string max_memory = "auto";
  double watchdog = 60;  // seconds without any progress after which the run fails

  // Where each key of a file was set ("a.yaml: line 3"), and the first key of each section. Empty
  // for a key of an override.
  std::map<std::string, std::string, std::less<>> places = {};
};

// Returns an error about a key of the configuration (Error::parameter) with the place where a file
// sets this key, else one of `related`, else a key of its section.
Error Located(Error error, const TrainConfig& config,
              std::initializer_list<std::string_view> related = {});

// Reads the file, then applies overrides: "model.dim=64", or only the last word of a key if it is
// unique, "dim=64". Checks ranges, but not values that depend on several sections, such as layers
// and stages. Errors: kNotFound for a missing file. kInvalidArgument, with file and line, for an
// unknown key (and the nearest known one), and for a value of the wrong type or out of range.
Result<TrainConfig> LoadTrainConfig(const std::string& path,
                                    const std::vector<std::string>& overrides = {});
// Reads the configuration that a run wrote to its folder. This program may not know its model.
Result<TrainConfig> LoadRunConfig(const std::string& path);
// Reads YAML text; `where` names it in errors.
Result<TrainConfig> ParseTrainConfig(std::string_view text, std::string_view where,
                                     const std::vector<std::string>& overrides = {});

// A key of the configuration, with its value as ToYaml writes it.
struct ConfigKey {
  std::string key;
  std::string value;
  Changes changes;
  std::string help;       // one line
  bool of_model = false;  // declared by the configured model
  // What the value may be; empty: not a fixed set.
  std::vector<std::string_view> choices = {};
};
// Returns every key, including the keys of the configured model.
std::vector<ConfigKey> KeysOf(const TrainConfig& config);

// Returns whether a run writes checkpoints other than when it is stopped.
bool WritesCheckpoints(const TrainConfig& config);

// Returns the update rule that the configuration describes.
UpdateRule UpdateRuleOf(const OptimizerConfig& config);

// Returns parallel.link, or nothing if it is empty. Errors: kInvalidArgument, with the key.
Result<std::optional<LinkSpeed>> LinkOf(const ParallelConfig& parallel);
// Parses a value of RecomputeConfig as bytes: the maximum for "all", 0 for "least".
Result<std::int64_t> ParseSavedBytes(std::string_view text);

struct KeyDifference {
  std::string key;
  std::string before, now;  // of `one` and of `other`
  Changes changes;
};
// Returns the keys of `other` whose values differ from those of `one`, or that `one` does not have.
std::vector<KeyDifference> DifferentKeys(const TrainConfig& one, const TrainConfig& other);

// Returns the keys that do not have the defaults of the configured model, as arguments `key=value`.
std::vector<std::string> ChangedKeys(const TrainConfig& config);

// Formats the whole configuration as YAML. ParseTrainConfig reads it back unchanged.
std::string ToYaml(const TrainConfig& config);

}  // namespace penstock
