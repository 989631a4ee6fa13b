// TrainConfig: everything a training run depends on, as plain data. No torch here.
//
// It is read from YAML whose sections are the members below ("model.dim"), then from key=value
// overrides. All that concerns single keys derives from the table in config_fields.cpp and from
// what the configured model declares (model_config.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text/fields.h"
#include "model/model_config.h"
#include "runtime/update/update.h"

namespace penstock {

struct DataConfig {
  std::string path = "/usr/share/games/fortunes";  // a file or a folder of text
  double held_out = 0.05;                          // share of the text that is never trained on
};

// The schedule and its shape. 0 and "auto" leave the choice to ChooseSchedule (setup.h).
struct PipelineConfig {
  int stages = 4;  // what an automatic choice of ranks and chunks makes
  int ranks = 0;
  int chunks = 0;
  std::string schedule = "auto";            // a name in the catalog
  std::string csv;                          // a schedule's file, in place of `schedule`
  int microbatches = 8;                     // of a step
  int slices = 1;                           // pieces of a microbatch along its sequences
  std::vector<std::int64_t> slice_lengths;  // tokens of each slice; empty: all alike
  bool split = false;                       // backward in I and W where the schedule has both forms
  std::vector<std::int64_t> stage_layers;   // layers of each stage; empty: as even as possible
  // What single algorithms read, as the options of 'penstock schedule' of the same names.
  int group = 0;            // microbatches in flight at a time; 0: the algorithm's default
  int waves = 0;            // 0: the algorithm's default
  double memory_limit = 0;  // activations of one rank and microbatch; 0: none
  std::string cost;         // "F" or "F,I,W", of one rank and microbatch; empty: 1,1,1
  double comm = 0;          // latency of a transfer, in the unit of `cost`
  std::string overlap;      // max, sum or a factor of F + B; empty: max
};

// What a microbatch may hold of its activations; the rest is made again when it is needed. "all",
// "least" (as little as can be), or bytes with a unit.
struct RecomputeConfig {
  std::string hold = "all";             // from the end of F to its backward
  std::string hold_for_weight = "all";  // from the end of I to W
};

// Where a schedule's OFFLOAD cells move activations to.
struct OffloadConfig {
  std::string pool;  // a folder for its file; empty: the run's own
};

struct OptimizerConfig {
  double lr = 3e-3;      // peak
  double lr_end = 0.05;  // share of the peak left at the last step
  int warmup = 30;       // steps from 0 to the peak
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.05;  // matrices only
  // Largest norm of all gradients together; larger ones are scaled down to it. 0: any.
  double clip = 0;
  // A gradient that is not finite ends the run ("fail"), or its step leaves all weights as they are
  // ("skip").
  std::string nonfinite = "fail";
  // Where clip or skip ask for the norm of all gradients, stages step without waiting for it; a
  // step that should have been another is taken back and made again, to the last bit (update.h).
  bool post_validation = false;
};

// Checkpoints of a run under way, in the run's folder.
struct CheckpointConfig {
  std::int64_t every = 0;  // steps from one to the next; 0: none
  int keep = 2;            // of the newest ones; 0: all
};

struct TrainConfig {
  std::string name = "run";  // files go to `folder`/`name`
  std::string folder = "runs";
  std::uint64_t seed = 1;  // of the parameters, the batches and the sampled passage
  ModelConfig model;       // its seed is set from the one above
  DataConfig data;
  PipelineConfig pipeline;
  RecomputeConfig recompute;
  OffloadConfig offload;
  OptimizerConfig optimizer;
  CheckpointConfig checkpoint;
  // Where to go on from: a checkpoint's file or a folder of them; "auto": the newest of the run's
  // own, or from the start where there is none; empty: from the start.
  std::string resume;
  std::vector<std::int64_t> trace_steps;  // steps (from 0) whose timelines are written as traces
  std::string compiled;      // a folder of 'penstock compile'; empty: stages are captured
  int batch = 4;             // samples of a microbatch
  std::int64_t steps = 300;  // optimizer steps
  double seconds = 0;        // time for the steps; 0: no limit. With a limit `steps` is the most
  int sample = 300;          // bytes of the passage written at the end
  // Weight gradients are added up as autograd does, to the last bit. False is faster: inside the
  // matrix products. Either way a run is the same every time.
  bool exact = true;
  // Chains of pointwise ops and norms run as kernels that the machine's C++ compiler makes, once:
  // they stay in the user's cache folder. With `exact` only what keeps the bits.
  bool fuse = true;
  // What is computed in: f32 or bf16. Weights are kept, gradients added up and steps made in f32.
  std::string precision = "f32";
  // Memory that the run may need, as estimated before it starts: "auto" (what is available), bytes
  // with a unit, or "none" (no check).
  std::string memory_limit = "auto";
  double watchdog = 60;  // seconds without any progress that end the run
};

// Reads the file, then applies overrides ("model.dim=64"; a key's last word where only one key has
// it, "dim=64"). Checks ranges, not what depends on several parts (layers and stages, say).
// Errors: kNotFound for the file; kInvalidArgument for a key that is unknown (named with the
// nearest known one), a value of the wrong kind or out of range. They name the file and the line.
Result<TrainConfig> LoadTrainConfig(const std::string& path,
                                    const std::vector<std::string>& overrides = {});
// The same from YAML text; `where` names it in errors.
Result<TrainConfig> ParseTrainConfig(std::string_view text, std::string_view where,
                                     const std::vector<std::string>& overrides = {});

// A key of the configuration, with its value as ToYaml writes it.
struct ConfigKey {
  std::string key;
  std::string value;
  Changes changes;
  std::string help;       // one line
  bool of_model = false;  // declared by the configured model
};
// Every key, those of the configured model among them.
std::vector<ConfigKey> KeysOf(const TrainConfig& config);

// What the configuration says of updates that all stages make together.
UpdateRule UpdateRuleOf(const OptimizerConfig& config);

// Bytes of a RecomputeConfig's value: the largest number for "all", 0 for "least".
Result<std::int64_t> HeldBytes(std::string_view text);

// The keys of `other` whose values differ from those of `one`, or that are not keys of it.
struct KeyDifference {
  std::string key;
  std::string before, now;  // of `one` and of `other`
  Changes changes;
};
std::vector<KeyDifference> DifferentKeys(const TrainConfig& one, const TrainConfig& other);

// The whole configuration as YAML, which ParseTrainConfig reads back to the same.
std::string ToYaml(const TrainConfig& config);

}  // namespace penstock
