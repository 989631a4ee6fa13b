// NVIDIA's performance pages of Megatron-Bridge.
#include "calibrate/formats/format.h"

namespace penstock {

Result<RunTexts> ReadMegatronBridgeRow(const CsvRow& row) {
  return RefuseCell(row, "system", "is not priced");
}

}  // namespace penstock
