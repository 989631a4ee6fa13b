#include "graph/run/program_replays.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/first_line.h"
#include "base/index.h"
#include "graph/ops/collective.h"
#include "graph/run/view.h"

namespace penstock {
namespace {

// More are only needed if addresses never repeat, and then recording costs more than it saves.
constexpr std::size_t kMostRecordings = 64;

// While anything else than a pool has it, outputs in the pool's memory are in use.
using Token = std::shared_ptr<char>;

const void* MemoryOf(const at::Tensor& tensor) { return tensor.storage().data(); }

// Memory of a pool, which is in use as long as the storage exists.
c10::Storage StorageAt(void* memory, std::size_t bytes, c10::Device device, const Token& token) {
  const auto release = [](void* context) { delete static_cast<Token*>(context); };
  return {c10::Storage::use_byte_size_t(), bytes,
          c10::DataPtr(memory, new Token(token), release, device), nullptr, /*resizable=*/false};
}

}  // namespace

struct ProgramReplays::Pool {
  std::unique_ptr<GraphPool> graphs;
  std::vector<at::Tensor> copies = {};  // of inputs, by input; undefined where none was copied
  Token token = std::make_shared<char>();

  bool IsFree() const { return token.use_count() == 1; }
};

struct ProgramReplays::Recording {
  // Where an output is: its type, its offset and the memory of a root.
  struct Output {
    int root = -1;  // of the recording; -1: the output is undefined
    TensorValue geometry = {};
  };
  // What outputs are views of: an input that is read where it is, or memory of the pool.
  struct Root {
    int input = -1;
    void* memory = nullptr;
    std::size_t bytes = 0;
    at::Tensor tensor = {};  // of a run
  };

  Pool* pool = nullptr;
  std::vector<const void*> bound = {};      // addresses
  std::vector<const void*> addresses = {};  // by input; null if it is copied
  std::vector<bool> defined = {};           // by input
  std::vector<Root> roots = {};
  std::vector<Output> outputs = {};
  std::unique_ptr<DeviceGraph> graph = {};  // null for an empty program

  bool Reads(std::span<const at::Tensor> inputs, std::span<const at::Tensor> values) const {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (defined[i] != inputs[i].defined()) return false;
      if (addresses[i] != nullptr && addresses[i] != inputs[i].const_data_ptr()) return false;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i].defined() && values[i].const_data_ptr() != bound[i]) return false;
    }
    return true;
  }

  // Returns the root of an output of the recorded run, which read `inputs`.
  int RootOf(const at::Tensor& tensor, std::span<const at::Tensor> inputs) {
    for (std::size_t i = 0; i < roots.size(); ++i) {
      if (roots[i].memory == MemoryOf(tensor)) return static_cast<int>(i);
    }
    Root& root = roots.emplace_back();
    root.memory = tensor.storage().mutable_data();
    root.bytes = tensor.storage().nbytes();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool shares = addresses[i] != nullptr && MemoryOf(inputs[i]) == root.memory;
      if (shares) root.input = static_cast<int>(i);
    }
    return static_cast<int>(roots.size()) - 1;
  }
  void Keep(std::span<const at::Tensor> inputs, std::span<const at::Tensor> results) {
    for (const at::Tensor& tensor : results) {
      Output& output = outputs.emplace_back();
      if (!tensor.defined()) continue;
      output.root = RootOf(tensor, inputs);
      output.geometry.type = TypeOf(tensor);
      output.geometry.view_offset = tensor.storage_offset();
    }
  }

  // Sets the roots to the memory of a run with these inputs.
  void SetRoots(std::span<const at::Tensor> inputs, c10::Device device) {
    for (Root& root : roots) {
      root.tensor = at::detail::make_tensor<c10::TensorImpl>(
          root.input >= 0 ? c10::Storage(inputs[Index(root.input)].storage())
                          : StorageAt(root.memory, root.bytes, device, pool->token),
          c10::DispatchKeySet(c10::computeDispatchKey(std::nullopt, std::nullopt, device)),
          c10::scalarTypeToTypeMeta(at::kByte));
    }
  }
  at::Tensor OutputOf(std::size_t i) const {
    const Output& output = outputs[i];
    if (output.root < 0) return {};
    return MakeView(roots[Index(output.root)].tensor, output.geometry);
  }
};

ProgramReplays::ProgramReplays(const Graph& graph, const GraphBinding& binding, ProgramPorts ports,
                               std::shared_ptr<RankRecorder> rank)
    : name_(graph.name),
      is_empty_(graph.nodes.empty()),
      device_(binding.device),
      ports_(std::move(ports)),
      rank_(std::move(rank)) {
  for (const Bound& bound : graph.bound) bound_.push_back(BoundTensor(bound, binding));
}
ProgramReplays::ProgramReplays(ProgramReplays&&) noexcept = default;
ProgramReplays::~ProgramReplays() {
  for (const auto& recording : recordings_) {
    for (const Recording::Root& root : recording->roots) {
      if (root.input < 0) rank_->memory.erase(root.memory);
    }
  }
}

std::string ProgramReplays::WhyNot(const Graph& graph) {
  if (std::ranges::any_of(graph.nodes, IsRandom)) return "it draws random numbers";
  if (std::ranges::any_of(graph.nodes, IsCollective)) return "it has collectives";
  return "";
}

ProgramReplays::Recording* ProgramReplays::Find(std::span<const at::Tensor> inputs) {
  const auto found = std::ranges::find_if(recordings_, [&](const auto& recording) {
    return recording->Reads(inputs, bound_) && recording->pool->IsFree();
  });
  return found == recordings_.end() ? nullptr : found->get();
}

ProgramReplays::Pool& ProgramReplays::FreePool() {
  for (const auto& pool : pools_) {
    if (pool->IsFree()) return *pool;
  }
  pools_.push_back(std::make_unique<Pool>(Pool{rank_->new_pool()}));
  pools_.back()->copies.resize(ports_.from_outside.size());
  return *pools_.back();
}

bool ProgramReplays::CanRecord(std::span<const at::Tensor> inputs) const {
  if (!has_run_ || refused_ || recordings_.size() >= kMostRecordings) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool fits = ports_.from_outside[i] || !inputs[i].defined() ||
                      rank_->memory.contains(MemoryOf(inputs[i]));
    if (!fits) return false;
  }
  return true;
}

namespace {

// Runs the program while the pool records. Returns why the device refuses; nothing if it does not.
std::optional<std::string> RecordRun(GraphPool& pool, GraphProgram& program,
                                     std::span<at::Tensor> inputs, std::span<at::Tensor> outputs,
                                     std::unique_ptr<DeviceGraph>& graph) {
  std::optional<std::string> refusal;
  try {
    pool.Begin();
    try {
      program.Run(inputs, outputs);
    } catch (const std::exception& error) {
      refusal = FirstLine(error.what());
    }
    graph = pool.End();
  } catch (const std::exception& error) {
    if (!refusal) refusal = FirstLine(error.what());
  }
  return refusal;
}

}  // namespace

// Returns null, and adds the reason to the rank's refusals, if the device refuses.
ProgramReplays::Recording* ProgramReplays::Record(GraphProgram& program,
                                                  std::span<const at::Tensor> inputs) {
  auto recording = std::make_unique<Recording>(Recording{&FreePool()});
  Pool& pool = *recording->pool;
  for (const at::Tensor& tensor : bound_) {
    recording->bound.push_back(tensor.defined() ? tensor.const_data_ptr() : nullptr);
  }
  std::vector<at::Tensor> read, outputs(ports_.leaves.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    const bool is_copied = input.defined() && !rank_->memory.contains(MemoryOf(input));
    if (is_copied && !pool.copies[i].defined()) {
      pool.copies[i] = at::empty_strided(input.sizes(), input.strides(), input.options());
    }
    read.push_back(is_copied ? pool.copies[i] : input);
    recording->defined.push_back(input.defined());
    recording->addresses.push_back(input.defined() && !is_copied ? input.const_data_ptr()
                                                                 : nullptr);
  }
  std::vector<at::Tensor> moved = read;
  if (is_empty_) {
    program.Run(moved, outputs);
  } else {
    const auto refusal = RecordRun(*pool.graphs, program, moved, outputs, recording->graph);
    if (refusal) {
      refused_ = true;
      rank_->refusals.insert(name_ + ": " + *refusal);
      return nullptr;
    }
    ++rank_->recordings;
  }
  recording->Keep(read, outputs);
  for (const Recording::Root& root : recording->roots) {
    if (root.input < 0) rank_->memory.insert(root.memory);
  }
  return recordings_.emplace_back(std::move(recording)).get();
}

void ProgramReplays::Run(GraphProgram& program, std::span<at::Tensor> inputs,
                         std::span<at::Tensor> outputs) {
  const c10::InferenceMode inference;
  Recording* recording = Find(inputs);
  if (recording == nullptr && CanRecord(inputs)) recording = Record(program, inputs);
  has_run_ = true;
  if (recording == nullptr) return program.Run(inputs, outputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_copied = recording->defined[i] && recording->addresses[i] == nullptr;
    if (is_copied) recording->pool->copies[i].copy_(inputs[i]);
  }
  if (recording->graph != nullptr) {
    recording->graph->Replay();
    ++rank_->replays;
  }
  recording->SetRoots(inputs, device_);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] = recording->OutputOf(i);
    if (ports_.leaves[i] && outputs[i].defined()) outputs[i] = outputs[i].clone();
  }
  for (Recording::Root& root : recording->roots) root.tensor.reset();
  for (at::Tensor& input : inputs) input.reset();
}

}  // namespace penstock
