// Logs of Aceso and Mist (github.com/Dazz993/Mist, results-ref): GPT on L4, A10G and A100 with
// stages of different sizes.
//
// They do not say which layers a stage has: both systems balance the stages, so that a stage's
// share of the layers is that of its devices. Nor do they say the vocabulary, which is
// Megatron-LM's.
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/index.h"
#include "base/text/numbers.h"
#include "calibrate/formats/format.h"
#include "calibrate/formats/megatron_defaults.h"

namespace penstock {
namespace {

struct AcesoDevice {
  std::string_view printed, name;
};
constexpr AcesoDevice kDevices[] = {{"l4", "l4"},
                                    {"a10g", "a10g"},
                                    {"a100-sxm4-40gb", "a100-40gb"},
                                    {"a100-sxm4-40gb-larger-model", "a100-40gb"}};
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

// Shares of the layers in proportion to the devices; what is left goes to the largest remainders.
std::vector<int> LayersByDevices(int layers, const std::vector<int>& devices) {
  const int all = std::accumulate(devices.begin(), devices.end(), 0);
  std::vector<int> counts, order(devices.size());
  for (const int each : devices) counts.push_back(layers * each / all);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](int stage) { return layers * devices[Index(stage)] % all; });
  int left = layers - std::accumulate(counts.begin(), counts.end(), 0);
  for (const int stage : order) {
    if (left-- <= 0) break;
    ++counts[Index(stage)];
  }
  return counts;
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
  PENSTOCK_TRY(const std::vector<int> devices, CountsOf(row, "gpus_per_stage", stages));
  PENSTOCK_TRY(const std::vector<int> tensor, CountsOf(row, "tp_first_op", stages));
  PENSTOCK_TRY(const std::vector<int> data, CountsOf(row, "dp_first_op", stages));
  PENSTOCK_TRY(const int layers, row.Count("layers"));
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
  texts.usual = {{"implementation", "megatron"}};
  texts.Set("release", "2022-01");
  texts.Set("attention", "unfused");
  texts.Set("dropout", "true");
  texts.Set("sequence_parallel", "false");
  texts.Set("ranks", pipeline);
  texts.Set("layout", fmt::format("{}", fmt::join(LayersByDevices(layers, devices), ",")));
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
