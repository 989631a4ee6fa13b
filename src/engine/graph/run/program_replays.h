// ProgramReplays: the runs of a program as graphs of a device (device_graphs.h).
//
// A graph reads and writes where it did when it was recorded. It reads the outputs of other graphs
// of the rank where they are, and copies of all other inputs. So there are as many recordings of a
// program as different places of its inputs: one for each microbatch in flight. The recordings
// of a program that are never in use at once share a pool of memory: a forward needs a pool for
// each microbatch in flight, and a backward that directly precedes the next one a single pool.
//
// All of this happens on one stream, in whose order the memory is used. Outputs that other streams
// read are copied.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/device/device_graphs.h"
#include "graph/run/interpret.h"

namespace penstock {

// What the programs of a rank share. Threads: one at a time.
struct RankRecorder {
  std::function<std::unique_ptr<GraphPool>()> new_pool;
  std::unordered_set<const void*> memory = {};  // where the outputs of recordings begin
  std::int64_t recordings = 0, replays = 0;
  std::set<std::string> refusals = {};  // which programs are not recorded, and why
};

// How a rank uses a program.
struct ProgramPorts {
  std::vector<bool> from_outside;  // by input: whether no program of the rank has computed it
  std::vector<bool> leaves;  // by output: whether others than the programs of the rank read it
};

// Threads: one at a time.
class ProgramReplays {
 public:
  // Returns why the graph cannot be recorded; empty if it may be.
  static std::string WhyNot(const Graph& graph);

  // Requires: WhyNot is empty. The graph and the binding are the program's.
  ProgramReplays(const Graph& graph, const GraphBinding& binding, ProgramPorts ports,
                 std::shared_ptr<RankRecorder> rank);
  ~ProgramReplays();
  ProgramReplays(ProgramReplays&&) noexcept;

  // As program.Run. The first run starts the ops one by one, because libraries set themselves up
  // then, and so does a run that cannot be recorded.
  void Run(GraphProgram& program, std::span<at::Tensor> inputs, std::span<at::Tensor> outputs);

 private:
  struct Pool;
  struct Recording;

  Pool& FreePool();
  Recording* Find(std::span<const at::Tensor> inputs);
  Recording* Record(GraphProgram& program, std::span<const at::Tensor> inputs);
  bool CanRecord(std::span<const at::Tensor> inputs) const;

  std::string name_;  // of the graph
  bool is_empty_;     // the graph has no nodes: all outputs are views of inputs
  c10::Device device_;
  ProgramPorts ports_;
  std::shared_ptr<RankRecorder> rank_;
  std::vector<at::Tensor> bound_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<std::unique_ptr<Recording>> recordings_;
  bool has_run_ = false;
  bool refused_ = false;
};

}  // namespace penstock
