// How a training job divides a model and its batch among devices.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost_model/implementation.h"
#include "cost_model/model_on_cluster.h"
#include "cost_model/precision.h"
#include "model_spec/layer_range.h"
#include "model_spec/model_shape.h"
#include "scenario/scenario.h"

namespace penstock {

struct JobDivision {
  int tensor = 1, context = 1, pipeline = 1, data = 1;
  ContextExchange context_exchange = ContextExchange::kRing;  // of several context ranks
  int expert = 1, expert_tensor = 0;                          // as in Scenario; 0: `tensor`
  AcrossSites across_sites = AcrossSites::kPipeline;
  int zero = 0;
  int micro_batch = 1;   // samples
  int microbatches = 1;  // of each replica
  std::string recompute = "none";
  bool gather_again = false;  // as in Microbatch
  int offloaded_layers = 0;   // of the model, whose activations wait in the memory of the host
  std::optional<Dispatcher> dispatcher = {};  // of experts; none: the scenario's; likewise below
  bool graphs_layers = false;                 // in CUDA graphs
  bool overlaps_experts = false;
  std::optional<Precision> precision = {};  // none: the scenario's

  // The ranks that each divide an expert's tensors.
  int experts_tensor() const { return expert_tensor > 0 ? expert_tensor : tensor; }
  // The ranks that have the same weights.
  int copies() const { return data * context; }

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes `default` for a null pointer
  auto operator<=>(const JobDivision&) const = default;
};

struct Framework;

// What there is to divide.
struct DivisionQuestion {
  const Scenario* scenario = nullptr;  // its dimensions are fixed; borrowed
  ModelShape shape;
  const Device* device = nullptr;        // borrowed
  int devices = 1, linked_devices = 1;   // in all, and with the fast links of a node
  std::int64_t global_batch = 1;         // samples of a step, of all replicas
  std::int64_t sequence = 1;             // tokens of a sample
  const Framework* framework = nullptr;  // borrowed
  bool may_gather_again = false;         // whether the implementation has the choice
  bool sequence_parallel = true;         // as in Microbatch
  bool shards_over_context = true;       // as Implementation has it
  std::vector<ContextExchange> exchanges = {ContextExchange::kRing};  // of several context ranks
  std::vector<Precision> precisions = {};  // that are allowed; empty: the scenario's
};

// Returns the divisions that use all devices and the whole batch. Some may still be refused when
// they are priced.
std::vector<JobDivision> JobDivisions(const DivisionQuestion& question);

// Returns the division with each way to compute and exchange its experts that its framework has and
// that needs no other schedule. They change no memory that is modelled.
std::vector<JobDivision> KernelVariants(const DivisionQuestion& question,
                                        const JobDivision& division);

// Sets the scenario's dimensions.
void SetDivision(const JobDivision& division, Scenario& scenario);

}  // namespace penstock
