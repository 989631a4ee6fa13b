// Functional tests of Megatron-LM (tests/functional_tests): golden values of iteration times and of
// the peak memory of the last rank. What the table lacks is known of the tests
// (megatron_arguments.h); what these lack has Megatron-LM's default.
#include <algorithm>
#include <array>

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "calibrate/formats/format.h"
#include "calibrate/formats/megatron_arguments.h"
#include "calibrate/formats/megatron_defaults.h"
#include "calibrate/formats/megatron_model.h"

namespace penstock {
namespace {

constexpr std::string_view kTest = "test", kPlatform = "platform";
// Rows of the busiest rank's experts over the mean: the routers of these tests are hardly trained.
// The one constant here that is fitted to measured peaks.
constexpr std::string_view kImbalance = "1.1";

struct TestDevices {
  std::string_view device;
  std::string nodes;
  int count = 8;
};

Result<TestDevices> DevicesOf(const CsvRow& row) {
  const std::string_view test = row.Text(kTest), platform = row.Text(kPlatform);
  const auto has = [](std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  };
  if (has(test, "release")) {
    return RefuseCell(row, kTest, "the number of GPUs of release tests is not public");
  }
  if (has(platform, "gb200")) {
    if (has(test, "_1node")) return TestDevices{"gb200", "1x4", 4};
    return TestDevices{"gb200", "2x4"};
  }
  if (has(platform, "h100")) return TestDevices{"h100", "1x8"};
  return TestDevices{"a100", "1x8"};
}

// Refuses runs that are more than the training of one decoder.
Status CheckTask(const MegatronArguments& arguments) {
  const CsvRow& row = arguments.row();
  const std::string_view test = row.Text(kTest);
  for (const std::string_view kind : {"mimo/", "t5/", "bert/", "multimodal"}) {
    if (test.starts_with(kind)) return RefuseCell(row, kTest, "only decoders can be expressed");
  }
  for (const std::string_view part : {"_gdn", "flextron"}) {
    if (test.find(part) == std::string_view::npos) continue;
    return RefuseCell(row, kTest, "gated delta nets and routers of widths cannot be expressed");
  }
  constexpr std::string_view kReinforcement = "perform-rl-step";
  if (!arguments.IsTrue(kReinforcement)) return {};
  return InvalidParameter(kReinforcement, "'true': the memory of inference cannot be expressed");
}

struct TestRanks {
  int tensor = 1, pipeline = 1, context = 1, replicas = 1;
};

Result<TestRanks> RanksOf(const MegatronArguments& arguments, int devices) {
  TestRanks ranks;
  PENSTOCK_TRY(ranks.tensor, arguments.CountOr("tensor-model-parallel-size", 1));
  PENSTOCK_TRY(ranks.pipeline, arguments.CountOr("pipeline-model-parallel-size", 1));
  PENSTOCK_TRY(ranks.context, arguments.CountOr("context-parallel-size", 1));
  PENSTOCK_TRY(ranks.replicas, ReplicasOf(arguments.row(), kTest, devices,
                                          ranks.tensor * ranks.pipeline * ranks.context));
  return ranks;
}

Status SetRanks(const MegatronArguments& arguments, const TestRanks& ranks, RunTexts& texts) {
  texts.Set("ranks", ranks.pipeline);
  texts.Set("data_parallel", ranks.replicas);
  SetUnlessOne("tensor", ranks.tensor, texts);
  SetUnlessOne("context", ranks.context, texts);
  if (ranks.tensor > 1 && !arguments.IsTrue("sequence-parallel")) {
    texts.Set("sequence_parallel", "false");
  }
  if (!arguments.Has("num-experts")) return {};
  PENSTOCK_TRY(const int expert, arguments.CountOr("expert-model-parallel-size", 1));
  SetUnlessOne("expert", expert, texts);
  if (expert > 1) texts.Set("expert_imbalance", kImbalance);
  PENSTOCK_TRY(const int expert_tensor,
               arguments.CountOr("expert-tensor-parallel-size", ranks.tensor));
  if (expert_tensor != ranks.tensor) texts.Set("expert_tensor", expert_tensor);
  if (arguments.IsTrue("overlap-moe-expert-parallel-comm")) texts.Set("overlapped_experts", "true");
  const std::string_view dispatcher = arguments.Text("moe-token-dispatcher-type");
  texts.Set("dispatcher", dispatcher == "flex"       ? "deepep"
                          : dispatcher == "alltoall" ? "all-to-all"
                                                     : "all-gather");
  return {};
}

// How many replicas share states.
Status SetSharding(const MegatronArguments& arguments, const TestRanks& ranks, RunTexts& texts) {
  const int replicas = ranks.replicas * ranks.context;
  if (replicas == 1) return {};
  if (arguments.IsTrue("use-megatron-fsdp") || arguments.IsTrue("use-torch-fsdp2")) {
    texts.Set("zero", 3);
  } else if (arguments.IsTrue("use-distributed-optimizer")) {
    texts.Set("zero", 1);
    PENSTOCK_TRY(const int instances, arguments.CountOr("num-distributed-optimizer-instances", 1));
    if (instances > 1 && replicas % instances == 0 && replicas > instances) {
      texts.Set("zero_ranks", replicas / instances);
    }
  }
  return {};
}

// "[layernorm mlp]" is "layernorm,mlp".
std::string ModulesOf(std::string_view text) {
  std::string modules(text);
  std::erase_if(modules, [](char c) { return c == '[' || c == ']' || c == '"'; });
  std::ranges::replace(modules, ' ', ',');
  return modules;
}

Status SetRecompute(const MegatronArguments& arguments, RunTexts& texts) {
  if (arguments.IsTrue("fine-grained-activation-offloading")) {
    texts.Set("offload_modules", ModulesOf(arguments.Text("offload-modules")));
  }
  const std::string_view granularity = arguments.Text("recompute-granularity");
  if (granularity.empty()) return {};
  if (granularity == "full") {
    PENSTOCK_TRY(const int layers, arguments.CountOr("recompute-num-layers", 1));
    const std::string_view method = arguments.Text("recompute-method");
    texts.Set("recompute", fmt::format("{}:{}", method == "block" ? "block" : "full", layers));
    return {};
  }
  if (granularity != "selective") {
    return InvalidParameter("recompute-granularity", "{}: full or selective is needed",
                            Quote(granularity));
  }
  const std::string modules = ModulesOf(arguments.Text("recompute-modules"));
  texts.Set("recompute", modules.empty() ? "selective" : "selective:" + modules);
  return {};
}

void SetPrecision(const MegatronArguments& arguments, RunTexts& texts) {
  const bool is_bf16 = arguments.IsTrue("bf16") && !arguments.IsTrue("fp16");
  texts.Set("precision", arguments.Has("fp8-format") ? "fp8" : is_bf16 ? "bf16" : "fp16");
}

// The kernels of attention; "auto" is left to the implementation.
void SetImplementation(const MegatronArguments& arguments, RunTexts& texts) {
  const bool is_local = arguments.Text("transformer-impl") == "local";
  texts.usual = {{"implementation", is_local ? "megatron" : "transformer-engine"}};
  if (arguments.is_old()) {
    const bool is_long_term = arguments.row().Text(kPlatform).starts_with("lts");
    texts.Set("release", is_long_term ? "2024-10" : "2025-10");
  }
  const std::string_view backend = arguments.Text("attention-backend");
  if (is_local || backend == "local") {
    texts.Set("attention", "unfused");
  } else if (backend == "flash" || backend == "fused" || backend == "unfused") {
    texts.Set("attention", backend);
  }
  if (arguments.IsTrue("deterministic-mode")) texts.Set("deterministic", "true");
  if (arguments.IsTrue("cross-entropy-loss-fusion")) texts.Set("fused_loss", "true");
  if (arguments.Has("cuda-graph-impl")) texts.Set("cuda_graphs", "partial");
  if (!arguments.IsTrue("no-create-attention-mask-in-dataloader")) {
    texts.Set("attention_mask", "true");
  }
  const auto rate = ParseNumber(arguments.Text("hidden-dropout"));
  if (!rate || *rate > 0) texts.Set("dropout", "true");
}

Status SetDeferredHead(const MegatronArguments& arguments, int microbatches, RunTexts& texts) {
  if (!arguments.IsTrue("defer-embedding-wgrad-compute")) return {};
  PENSTOCK_TRY(const int limit, arguments.CountOr("wgrad-deferral-limit", microbatches));
  if (microbatches > 1) texts.Set("deferred_head", std::min(limit, microbatches - 1));
  return {};
}

// The device's memory is what the test measures; its time is in seconds.
Status SetMeasured(const CsvRow& row, RunTexts& texts) {
  texts.peak_of = MeasuredRun::PeakOf::kLast;
  if (row.Has("mem_max_bytes")) {
    PENSTOCK_TRY(texts.peak_bytes, row.Positive("mem_max_bytes"));
  }
  if (row.Has("iter_s_median")) {
    PENSTOCK_TRY(texts.step_time, row.Positive("iter_s_median"));
  }
  if (texts.peak_bytes || texts.step_time) return {};
  return InvalidParameter("mem_max_bytes", ": the row has neither this nor iter_s_median");
}

}  // namespace

Result<RunTexts> ReadMegatronTestsRow(const CsvRow& row) {
  const MegatronArguments arguments(row);
  PENSTOCK_TRY_STATUS(CheckTask(arguments));
  PENSTOCK_TRY(const TestDevices devices, DevicesOf(row));
  PENSTOCK_TRY(const TestRanks ranks, RanksOf(arguments, devices.count));
  PENSTOCK_TRY(const int micro_batch, arguments.Count("micro-batch-size"));
  RunTexts texts;
  texts.Set("device", devices.device);
  texts.Set("nodes", devices.nodes);
  texts.Set("micro_batch_size", micro_batch);
  PENSTOCK_TRY(const int microbatches,
               MicrobatchesOf(row, "global-batch-size", micro_batch, ranks.replicas));
  texts.Set("microbatches", microbatches);
  PENSTOCK_TRY_STATUS(SetMegatronModel(arguments, ranks.tensor, texts));
  PENSTOCK_TRY_STATUS(SetMegatronStages(arguments, ranks.pipeline, texts));
  PENSTOCK_TRY_STATUS(SetRanks(arguments, ranks, texts));
  PENSTOCK_TRY_STATUS(SetSharding(arguments, ranks, texts));
  PENSTOCK_TRY_STATUS(SetRecompute(arguments, texts));
  SetPrecision(arguments, texts);
  SetImplementation(arguments, texts);
  PENSTOCK_TRY_STATUS(SetDeferredHead(arguments, microbatches, texts));
  PENSTOCK_TRY_STATUS(SetMeasured(row, texts));
  return texts;
}

}  // namespace penstock
