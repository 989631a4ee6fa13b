// The extension module penstock.torch._engine. Its interface is private: use penstock.torch.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>

#include "base/index.h"
#include "bindings/engine/mesh_run.h"
#include "bindings/engine/pipeline.h"
#include "bindings/engine/process_mail.h"
#include "bindings/engine/stage_pieces.h"
#include "bindings/engine/updates.h"
#include "bindings/engine/watch.h"
#include "config/train_config.h"
#include "graph/capture/decompositions.h"
#include "graph/capture/recorder.h"
#include "graph/device/device_queue.h"
#include "graph/ops/c10d_groups.h"
#include "graph/ops/random_ops.h"
#include "graph/run/program_replays.h"
#include "schedule/text/text.h"
#include "tcp/tcp_process_group.h"
#include "train/c10d/c10d_process_group.h"

namespace {

using namespace penstock;
using namespace penstock::python;
using nb::literals::operator""_a;

struct PythonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class T>
T ValueOf(Result<T> result) {
  if (!result) throw PythonError(result.error().line());
  return *std::move(result);
}

// The processes of a run, and the ranks that this one runs.
struct Processes {
  std::shared_ptr<ProcessGroup> group;  // null for a single process
  std::shared_ptr<ProcessMail> mail;    // likewise
  int processes = 1;
  int process = 0;
};

// Constructs a pipeline at `self`. `everyone` are the processes of all planes of a mesh; null
// without.
void MakePipeline(EnginePipeline* self, const std::string& csv, int microbatches, int replicas,
                  int slices, const std::string& weights, const PipelineOptions& options,
                  const Processes& processes, const Processes* everyone) {
  const WeightPolicy policy = ValueOf(ParseWeights(weights));
  Schedule schedule = ValueOf(ParseCsv(csv, {microbatches, replicas, slices, 1, policy}));
  const LocalRanks ranks =
      ValueOf(LocalRanks::Split(schedule.ranks(), processes.processes, processes.process));
  std::unique_ptr<MeshRun> mesh;
  if (everyone != nullptr && everyone->group) {
    // The watchdog, which knows what ranks do, comes first.
    const auto timeout =
        std::chrono::milliseconds(static_cast<std::int64_t>(options.watchdog * 2e3));
    mesh = std::make_unique<MeshRun>(everyone->group, processes.group, timeout);
  }
  new (self) EnginePipeline(std::move(schedule), options, processes.group, ranks, std::move(mesh));
}

// `numbers`: see ProcessGroup::SetNumbers.
Processes Connect(TcpListener& listener, int process, std::vector<std::string> addresses,
                  const nb::bytes& secret, const std::string& machine, double seconds,
                  std::vector<int> numbers) {
  const int processes = static_cast<int>(addresses.size());
  const auto limit = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
  const TcpRun run{process, std::move(addresses), {secret.c_str(), secret.size()}, machine, limit};
  const nb::gil_scoped_release no_gil;
  const std::shared_ptr<ProcessGroup> group =
      ValueOf(ConnectTcpProcesses(std::move(listener), run));
  group->SetNumbers(std::move(numbers));
  return {group, std::make_shared<ProcessMail>(*group), processes, process};
}

// Over groups of torch.distributed, whose names are by process.
Processes OverC10d(int process, const std::vector<std::string>& to,
                   const std::vector<std::string>& from, const std::string& device,
                   std::vector<std::string> machines) {
  const nb::gil_scoped_release no_gil;
  C10dPlace place = ValueOf(FindC10dPlace(process, to, from));
  place.device = c10::Device(device);
  place.machines = std::move(machines);
  const std::shared_ptr<ProcessGroup> group = MakeC10dProcessGroup(std::move(place));
  return {group, std::make_shared<ProcessMail>(*group), static_cast<int>(to.size()), process};
}

std::optional<SharedGradient> ToShared(
    const std::optional<std::tuple<std::string, int, int>>& shared) {
  if (!shared) return {};
  return SharedGradient{std::get<0>(*shared), std::get<1>(*shared), std::get<2>(*shared)};
}

// The caller's work on the default stream may still read the tensor when it is freed.
void KeepForCaller(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return;
  const c10::impl::VirtualGuardImpl impl(tensor.device().type());
  KeepUntilRead({&tensor, 1}, impl.getDefaultStream(tensor.device()));
}

// Returns a tensor of this shape and dtype without memory. Reading it throws the message.
at::Tensor WithoutMemory(const at::Tensor& like, const std::string& message) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), like.nbytes(),
                       at::DataPtr(nullptr, like.device()), nullptr, /*resizable=*/false);
  storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(message);
  const c10::DispatchKey key =
      c10::computeDispatchKey(like.scalar_type(), at::kStrided, like.device());
  at::Tensor tensor = at::detail::make_tensor<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(like.sizes());
  return tensor;
}

// Parses a value of RecomputeConfig.
std::int64_t SavedBytes(const char* key, const std::string& text) {
  const Result<std::int64_t> bytes = ParseSavedBytes(text);
  if (!bytes) throw PythonError(fmt::format("recompute: {}: {}", key, bytes.error().line()));
  return *bytes;
}

void AddOptions(nb::module_& module) {
  nb::class_<PipelineOptions>(module, "PipelineOptions")
      .def(nb::init<>())
      .def_rw("threads", &PipelineOptions::threads)
      .def(
          "set_devices",
          [](PipelineOptions& self, const std::vector<std::string>& names, bool graphs,
             bool parts) {
            self.devices = {c10::kCPU, graphs, parts};
            for (const std::string& name : names) {
              self.devices.by_rank.push_back(ValueOf(OpenDevice(name)));
            }
          },
          "by_rank"_a, "graphs"_a, "parts"_a)
      .def(
          "set_stages",
          [](PipelineOptions& self, bool exact, bool bf16_gradients, std::uint64_t seed) {
            self.stage.compile.exact = exact;
            self.stage.gradients.dtype = bf16_gradients ? at::kBFloat16 : at::kFloat;
            self.stage.random.seed = seed;
          },
          "exact"_a, "bf16_gradients"_a, "seed"_a)
      .def(
          "set_recompute",
          [](PipelineOptions& self, const std::string& hold, const std::string& hold_for_weight,
             bool gather_again) {
            self.stage.compile.gather_again = gather_again;
            self.stage.compile.save_budget = SavedBytes("hold", hold);
            self.stage.compile.save_budget_for_weight =
                SavedBytes("hold_for_weight", hold_for_weight);
          },
          "hold"_a, "hold_for_weight"_a, "gather_again"_a)
      .def("set_replicas",
           [](PipelineOptions& self, int data, int zero) {
             self.parallel.data = data;
             self.parallel.zero = zero;
           })
      .def("set_update",
           [](PipelineOptions& self, double clip, bool skip_nonfinite) {
             self.update.clip = clip;
             self.update.skip_nonfinite = skip_nonfinite;
           })
      .def("set_slice_lengths",
           [](PipelineOptions& self, std::vector<std::int64_t> lengths) {
             self.stage.lengths.of_slices = std::move(lengths);
           })
      .def_rw("watchdog", &PipelineOptions::watchdog)
      .def_rw("first_step", &PipelineOptions::first_step)
      .def_rw("offload_folder", &PipelineOptions::offload_folder);
}

void AddProcesses(nb::module_& module) {
  nb::class_<TcpListener>(module, "TcpListener").def_ro("address", &TcpListener::address);
  module.def("listen", [](const std::string& at) { return ValueOf(OpenTcpListener(at)); });
  nb::class_<Processes>(module, "Processes")
      .def(nb::init<>())
      .def_static("connect", &Connect, "listener"_a, "process"_a, "addresses"_a, "secret"_a,
                  "machine"_a, "seconds"_a, "numbers"_a = std::vector<int>())
      .def_static("over_c10d", &OverC10d, "process"_a, "to"_a, "from"_a, "device"_a, "machines"_a)
      .def("leave",
           [](Processes& self) {
             const nb::gil_scoped_release no_gil;
             self.mail.reset();
             if (self.group) self.group->Leave();
             self.group.reset();
           })
      .def("send",
           [](Processes& self, int to, const nb::bytes& letter) {
             if (self.mail) self.mail->Send(to, {letter.c_str(), letter.size()});
           })
      .def("receive", [](Processes& self, int milliseconds) {
        const auto receive = [&]() -> Result<std::string> {
          const nb::gil_scoped_release no_gil;
          if (!self.mail) return std::string();
          return self.mail->Receive(std::chrono::milliseconds(milliseconds));
        };
        const std::string letter = ValueOf(receive());
        return nb::bytes(letter.data(), letter.size());
      });
}

void AddStages(nb::module_& module) {
  nb::class_<StageFunctions>(module, "StageFunctions")
      .def(
          "__init__",
          [](StageFunctions* self, nb::callable forward, nb::object loss, nb::callable judge) {
            new (self) StageFunctions{std::move(forward), std::move(loss), std::move(judge)};
          },
          "forward"_a, "loss"_a.none(), "judge"_a);
  nb::class_<StageParts>(module, "StageParts")
      .def(nb::init<>())
      .def_rw("functions", &StageParts::functions)
      .def_rw("parameters", &StageParts::parameters)
      .def_rw("masters", &StageParts::masters)
      .def_rw("working", &StageParts::working)
      .def_rw("state", &StageParts::state)
      .def_rw("inputs", &StageParts::inputs)
      .def_rw("targets", &StageParts::targets)
      .def(
          "share",
          [](StageParts& self, const std::optional<std::tuple<std::string, int, int>>& shared) {
            self.shared.push_back(ToShared(shared));
          },
          "shared"_a.none())
      .def("set_planes",
           [](StageParts& self, std::map<std::string, std::int64_t> divided, std::int64_t context) {
             self.planes = {std::move(divided), context};
           })
      .def("update_by_function",
           [](StageParts& self, nb::callable function, std::vector<std::string> names) {
             self.update = CallPython(std::move(function), std::move(names));
           })
      .def("update_by_adamw", [](StageParts& self, std::shared_ptr<FusedAdamW> adamw) {
        self.update = [adamw](const std::vector<NamedParameter>& parameters) {
          adamw->Update(parameters);
        };
        self.after_step = [adamw] { adamw->EndStep(); };
      });
}

void AddAdamW(nb::module_& module) {
  nb::class_<FusedAdamW>(module, "FusedAdamW")
      .def(nb::init<>())
      .def("add_group",
           [](FusedAdamW& self, std::vector<std::string> names, Tensors values,
              Tensors first_moments, Tensors second_moments, Tensors steps) {
             self.AddGroup({{},
                            std::move(names),
                            std::move(values),
                            std::move(first_moments),
                            std::move(second_moments),
                            std::move(steps)});
           })
      .def("clear", &FusedAdamW::Clear)
      .def("begin_run", &FusedAdamW::BeginRun)
      .def(
          "add_settings",
          [](FusedAdamW& self, std::size_t group, double lr, double beta1, double beta2, double eps,
             double weight_decay) {
            self.Add(group, {lr, beta1, beta2, eps, weight_decay});
          },
          "group"_a, "lr"_a, "beta1"_a, "beta2"_a, "eps"_a, "weight_decay"_a);
}

// Methods of the pipeline's parts, as methods of the pipeline.
template <class Part, Part& (EnginePipeline::*part)(), class R, class... Args>
auto OfPart(R (Part::*method)(Args...)) {
  return [method](EnginePipeline& self, Args... args) -> R {
    return ((self.*part)().*method)(std::forward<Args>(args)...);
  };
}
template <class Part, Part& (EnginePipeline::*part)(), class R, class... Args>
auto OfPart(R (Part::*method)(Args...) const) {
  return [method](EnginePipeline& self, Args... args) -> R {
    return ((self.*part)().*method)(std::forward<Args>(args)...);
  };
}
constexpr auto OfBuilt = [](auto method) {
  return OfPart<BuiltStages, &EnginePipeline::built>(method);
};
constexpr auto OfLastBatch = [](auto method) {
  return OfPart<LastBatch, &EnginePipeline::last_batch>(method);
};

void AddPipeline(nb::module_& module) {
  nb::class_<EnginePipeline>(module, "Pipeline")
      .def("__init__", &MakePipeline, "csv"_a, "microbatches"_a, "replicas"_a, "slices"_a,
           "weights"_a, "options"_a, "processes"_a, "everyone"_a.none() = nb::none())
      .def("set_shared", &EnginePipeline::SetShared)
      .def("begin_captures", OfBuilt(&BuiltStages::BeginCaptures))
      .def("capture", OfBuilt(&BuiltStages::Capture))
      .def("capture_shape", OfBuilt(&BuiltStages::CaptureShape))
      .def("difference",
           [](EnginePipeline& self, int model_stage, std::int64_t shape) {
             nb::object found = nb::none();
             if (const auto difference = self.built().FindDifference(model_stage, shape)) {
               found = nb::make_tuple(difference->node, difference->op, difference->in_values);
             }
             return found;
           })
      .def("is_like", [](EnginePipeline& self,
                         EnginePipeline& other) { return self.built().AreLike(other.built()); })
      .def("build", &EnginePipeline::Build)
      .def("gather", &EnginePipeline::Gather)
      .def("drop_gathered", &EnginePipeline::DropGathered)
      .def("set_weights", &EnginePipeline::SetWeights)
      .def("read_weights", &EnginePipeline::ReadWeights)
      .def("updated", OfBuilt(&BuiltStages::Updated))
      .def("build_shape", OfBuilt(&BuiltStages::BuildShape))
      .def("add_shape", OfBuilt(&BuiltStages::AddShape))
      .def("drop_shape", OfBuilt(&BuiltStages::DropShape))
      .def("drop_built", OfBuilt(&BuiltStages::DropBuilt))
      .def("all_fit_last", OfLastBatch(&LastBatch::AllFit))
      .def("run", &EnginePipeline::Run)
      .def("set_watches", OfLastBatch(&LastBatch::SetWatches))
      .def("fits_last", OfLastBatch(&LastBatch::Fits), "inputs"_a.none(), "targets"_a.none())
      .def("is_like_last", OfLastBatch(&LastBatch::IsLike), "inputs"_a.none(), "targets"_a.none())
      .def("set_steps", &EnginePipeline::SetSteps)
      .def("set_metrics", &EnginePipeline::SetMetrics)
      .def("figures", &EnginePipeline::Figures)
      .def("last_outputs", &EnginePipeline::LastOutputs)
      .def("times",
           [](const EnginePipeline& self) {
             nb::list list;
             for (const RankTimes& of : self.Times()) {
               list.append(nb::make_tuple(of.rank, of.starts, of.ends));
             }
             return list;
           })
      .def("graph_text", OfBuilt(&BuiltStages::GraphText))
      .def("saved_bytes", &EnginePipeline::SavedBytes)
      .def("collectives", OfBuilt(&BuiltStages::CountCollectives))
      .def("device_graphs", [](const EnginePipeline& self) {
        nb::list list;
        int rank = 0;
        for (const auto& of : self.DeviceGraphs()) {
          if (of) {
            const std::vector<std::string> refusals(of->refusals.begin(), of->refusals.end());
            list.append(nb::make_tuple(rank, of->recordings, of->replays, refusals));
          }
          ++rank;
        }
        return list;
      });
}

void AddPieces(nb::module_& module) {
  nb::class_<StagePieces>(module, "StagePieces")
      .def(nb::init<const StageParts&, bool, bool, bool>(), "parts"_a, "is_first"_a, "is_last"_a,
           "captures_only"_a)
      .def("difference",
           [](const StagePieces& self, const StagePieces& other) {
             nb::object found = nb::none();
             if (const auto difference = self.FindDifference(other)) {
               found = nb::make_tuple(difference->node, difference->op, difference->in_values);
             }
             return found;
           })
      .def("example_outputs", &StagePieces::ExampleOutputs)
      .def("ports", &StagePieces::Ports)
      .def("pieces", &StagePieces::Pieces)
      .def("pair", &StagePieces::Pair, "backward"_a, "is_same_stage"_a);
}

void AddWatch(nb::module_& module) {
  nb::class_<Watch>(module, "Watch")
      .def(nb::init<>())
      .def("add_item", &Watch::AddItem, "holder"_a, "key"_a, "value"_a.none())
      .def("add_absent", &Watch::AddAbsent)
      .def("add_keys", &Watch::AddKeys, "holder"_a, "read"_a.none())
      .def("add_members", &Watch::AddMembers)
      .def("add_size", &Watch::AddSize)
      .def("add_cell", &Watch::AddCell)
      .def("add_class", &Watch::AddClass, "value"_a.none())
      .def("add_function", &Watch::AddFunction)
      .def("add_call", &Watch::AddCall)
      .def("add_tensor", &Watch::AddTensor)
      .def("add_content", &Watch::AddContent)
      .def("add_watch", &Watch::AddWatch)
      .def("is_unchanged", &Watch::IsUnchanged)
      .def("changed", &Watch::Changed);
}

void AddFunctions(nb::module_& module) {
  module.def("without_memory", &WithoutMemory);
  module.def("keep_for_caller", &KeepForCaller);
  module.def("is_capturing", &IsCapturing);
  module.def("stop_capture_after", &StopCaptureAfter);
  module.def("random_op", &PeekRandomOp);
  module.def("set_random_op", &SetRandomOp);
  module.def("set_part_of_tensor", &SetPartOfTensor);
  module.def("number_of_group", &NumberOfC10dGroup);
  module.def("name_of_group", &NameOfC10dGroup);
  module.def("set_clone_of_group", &SetC10dClone);
  module.def("is_constant", [](const at::Tensor& tensor) {
    Recorder* const recorder = CurrentRecorder();
    return recorder == nullptr || recorder->IsConstant(tensor);
  });
  module.def("slice_start", []() -> std::optional<std::int64_t> {
    const SequenceContext* const slice = PythonStage::Slice();
    if (slice == nullptr) return std::nullopt;
    return slice->start();
  });
  module.def("slice_extend", [](const at::Tensor& keys, const at::Tensor& values) {
    SequenceContext* const slice = PythonStage::Slice();
    if (slice == nullptr) throw PythonError("no stage is captured for a slice on this thread");
    const KeysValues all = slice->Extend({keys, values});
    return std::pair(all.keys, all.values);
  });
}

}  // namespace

NB_MODULE(_engine, module) {
  nb::set_leak_warnings(false);  // modules of torch may outlive the interpreter
  nb::exception<PythonError>(module, "Error", PyExc_RuntimeError);
  AddOptions(module);
  AddProcesses(module);
  AddStages(module);
  AddAdamW(module);
  AddPipeline(module);
  AddPieces(module);
  AddWatch(module);
  AddFunctions(module);
}
