// Logs of Aceso and Mist (github.com/Dazz993/Mist, results-ref): GPT on L4, A10G and A100 with
// stages of different sizes.
//
// They do not say which layers a stage has: both systems balance the stages, so that a stage's
// share of the layers is that of its devices. Nor do they say the vocabulary, which is
// Megatron-LM's.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/index.h"
#include "base/text/numbers.h"
#include "calibrate/formats/format.h"
#include "calibrate/formats/megatron_defaults.h"

namespace penstock {
namespace {

struct AcesoDevice {
  std::string_view printed, name;
  const char* link_efficiency = nullptr;  // null: the implementation's
  const char* network_efficiency = nullptr;
};
constexpr AcesoDevice kDevices[] = {{"l4", "l4", "0.19", "1"},
                                    {"a10g", "a10g", "0.1", "1"},
                                    {"a100-sxm4-40gb", "a100-40gb", nullptr, "0.5"},
                                    {"a100-sxm4-40gb-larger-model", "a100-40gb", nullptr, "0.5"}};
constexpr int kDevicesPerNode = 8;

// "2/2/4"
Result<std::vector<int>> CountsOf(const CsvRow& row, std::string_view column, std::size_t stages) {
  std::vector<int> counts;
  std::string_view rest = row.Text(column);
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    const auto count = ParseInt(part);
    if (!count || *count < 1) return RefuseCell(row, column, "numbers of devices are needed");
    counts.push_back(*count);
  }
  if (counts.size() == stages) return counts;
  return RefuseCell(row, column, fmt::format("{} stages are needed", stages));
}

// "T/T/F"
Result<std::string> RecomputeOf(const CsvRow& row, std::size_t stages) {
  std::vector<std::string_view> parts;
  for (const char c : row.Text("recompute")) {
    if (c == '/') continue;
    if (c != 'T' && c != 'F') return RefuseCell(row, "recompute", "T/F by stage is needed");
    parts.emplace_back(c == 'T' ? "full" : "none");
  }
  if (parts.size() == stages) return fmt::format("{}", fmt::join(parts, ","));
  return RefuseCell(row, "recompute", fmt::format("{} stages are needed", stages));
}

}  // namespace

Result<RunTexts> ReadAcesoRow(const CsvRow& row) {
  const auto device = std::ranges::find(kDevices, row.Text("gpu"), &AcesoDevice::printed);
  if (device == std::end(kDevices)) return RefuseCell(row, "gpu", "the device is unknown");
  PENSTOCK_TRY(const int pipeline, row.Count("pp"));
  const std::size_t stages = Index(pipeline);
  PENSTOCK_TRY(const std::vector<int> tensor, CountsOf(row, "tp_first_op", stages));
  PENSTOCK_TRY(const std::vector<int> data, CountsOf(row, "dp_first_op", stages));
  PENSTOCK_TRY(const int gpus, row.Count("gpus"));
  PENSTOCK_TRY(const int micro_batch, row.Count("mbs"));
  PENSTOCK_TRY(const int microbatches, MicrobatchesOf(row, "gbs", micro_batch, 1));
  PENSTOCK_TRY(const std::string recompute, RecomputeOf(row, stages));
  RunTexts texts;
  PENSTOCK_TRY_STATUS(SetGptSizes(row,
                                  {.layers = "layers",
                                   .hidden = "hidden",
                                   .heads = "heads",
                                   .sequence = "seq",
                                   .vocabulary = 51'200},
                                  texts));
  texts.Set("device", device->name);
  texts.Set("nodes", NodesOf(gpus, kDevicesPerNode));
  texts.Set("precision", "fp16");
  texts.usual = {{"implementation", "megatron"},
                 {"network_efficiency", device->network_efficiency}};
  if (device->link_efficiency != nullptr) {
    texts.usual.emplace_back("link_efficiency", device->link_efficiency);
  }
  texts.Set("release", "2021-01");
  texts.Set("dropout", "true");
  texts.Set("sequence_parallel", "false");
  texts.Set("ranks", pipeline);
  texts.Set("stage_tensor", fmt::format("{}", fmt::join(tensor, ",")));
  texts.Set("stage_data", fmt::format("{}", fmt::join(data, ",")));
  texts.Set("stage_recompute", recompute);
  texts.Set("micro_batch_size", micro_batch);
  texts.Set("microbatches", microbatches);
  PENSTOCK_TRY(const double ms, row.Positive("measured_iter_ms"));
  texts.step_time = ms / 1e3;
  if (row.Has("max_alloc_MB_seen")) {
    PENSTOCK_TRY(const double megabytes, row.Positive("max_alloc_MB_seen"));
    texts.peak_bytes = megabytes * 0x1p20;
  }
  return texts;
}

}  // namespace penstock
