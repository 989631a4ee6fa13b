#include "calibrate/formats/megatron_defaults.h"

namespace penstock {

Status SetGptSizes(const CsvRow& row, const GptColumns& columns, RunTexts& texts) {
  PENSTOCK_TRY(const int layers, row.Count(columns.layers));
  PENSTOCK_TRY(const int hidden, row.Count(columns.hidden));
  PENSTOCK_TRY(const int heads, row.Count(columns.heads));
  PENSTOCK_TRY(const int sequence, row.Count(columns.sequence));
  texts.Set("model", "gpt");
  texts.Set("layers", layers);
  texts.Set("dim", hidden);
  texts.Set("hidden", 4 * hidden);
  texts.Set("heads", heads);
  texts.Set("vocabulary", columns.vocabulary);
  texts.Set("sequence", sequence);
  return {};
}

std::string NodesOf(int devices, int devices_per_node) {
  if (devices <= devices_per_node) return fmt::format("1x{}", devices);
  return fmt::format("{}x{}", devices / devices_per_node, devices_per_node);
}

Result<int> ReplicasOf(const CsvRow& row, std::string_view column, int devices, int ranks) {
  if (devices % ranks == 0) return devices / ranks;
  return RefuseCell(row, column,
                    fmt::format("{} ranks of a replica do not divide the devices", ranks));
}

void SetUnlessOne(std::string_view field, int value, RunTexts& texts) {
  if (value != 1) texts.Set(field, value);
}

}  // namespace penstock
