// Scenario: what a user asks. Which schedules, at which size, with which costs, passes and noise.
//
// The command line, configurations, a schedule's own options (interleaved:v=4), sweeps and Python
// all fill the same members; scenario_fields.def declares each of them once, with its range and
// help. A member that nobody set is empty, so sources of lower precedence may set it. build/build.h
// makes priced schedules of a scenario.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cost_model/request/model_request.h"
#include "scenario/time_value.h"
#include "schedule/cost_files/collectives_config.h"
#include "schedule/cost_files/cost_list.h"
#include "schedule/cost_files/stage_profile.h"
#include "schedule/costs.h"
#include "schedule/placement.h"

namespace penstock {

// Fields by name ("microbatches") with their values as text. Only fields that take a list (pass,
// price, slow_rank) may repeat.
using FieldTexts = std::vector<std::pair<std::string, std::string>>;

// One schedule that a scenario asks about.
struct Candidate {
  enum class Kind { kAlgorithm, kFile };
  Kind kind = Kind::kAlgorithm;
  std::string name;          // of the algorithm, or the path of the file or folder
  FieldTexts options = {};   // override the scenario's
  std::string written = {};  // as the user wrote it, if it has options

  const std::string& label() const { return written.empty() ? name : written; }
};

// One field of a sweep with its values, at least one and all different.
struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
};

// Measured costs of a model's stages, and how its layers are divided among them.
struct ProfiledModel {
  StageProfile profile;
  std::int64_t layers = 1;
  std::vector<std::int64_t> stage_layers = {};  // by stage; empty: as evenly as possible
  int data = 1;                                 // replicas of the pipeline
  bool shards = false;                          // whether these divide the updates (ZeRO-1)
};

// The costs that a trace or a dump has, and the stages that have them.
struct FileCosts {
  Costs costs;  // before passes
  Placement placement;
  int slices = 1;
  bool in_bytes = false;
  std::string time_unit = {};  // "s", or empty for the unit of the costs
};

// The base has the model and its devices, which determine all costs if there is a model.
struct Scenario : ModelRequest {
  std::vector<Candidate> schedules;
  std::vector<SweepAxis> sweep;
  // Whether several schedules are compared. Each then ignores fields that others read, and memory
  // limits that it does not support.
  bool compares = false;

  // What the user asks for each schedule.
#define FIELD(group, type, member, ...) std::optional<type> member;
#define LIST_FIELD(group, member, ...) std::vector<std::string> member;
#define MODEL_FIELDS  // members of the base
#include "scenario/scenario_fields.def"
#undef FIELD
#undef LIST_FIELD
#undef MODEL_FIELDS

  // Where a file set a field: "a.yaml: line 3".
  std::map<std::string, std::string, std::less<>> places;
  // Costs that the machine's profile determines.
  std::optional<ProfiledModel> profiled;
  // Costs of the file next to which a schedule is compared (price/next_to_file.h).
  std::optional<FileCosts> file_costs;

  std::string remark;  // a line below the table: what of a training configuration has no price
  // What the schedule that is priced says itself: memory in bytes (Primus's dumps), and a
  // vocabulary that its ranks share.
  bool file_in_bytes = false;
  bool vocabulary_is_sharded = false;

  bool prices_model() const { return model.has_value(); }
  // Whether the costs fit any number of stages.
  bool costs_by_layer() const { return prices_model() || layer_costs || profiled || file_costs; }
  bool has_costs() const { return cost || stage_costs || costs_by_layer(); }
  bool in_bytes() const;
  // Whether the ranks share the vocabulary, by a pass or in the schedule.
  bool shards_vocabulary() const;
};

// What is done with a scenario: decides which fields have an effect.
struct Purpose {
  bool prices = true;         // false: only the order of actions counts
  bool has_runs = false;      // whether jitter and steady state are simulated
  bool shows_memory = false;  // by kind
  bool sweeps = false;
};

}  // namespace penstock
