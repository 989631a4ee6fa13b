// Logs of Aceso and Mist (github.com/Dazz993/Mist, results-ref): GPT on L4, A10G and A100 with
// stages of different sizes.
#include "calibrate/formats/format.h"

namespace penstock {

Result<RunTexts> ReadAcesoRow(const CsvRow& row) {
  return RefuseCell(row, "gpus_per_stage", "stages with GPUs of their own are not priced");
}

}  // namespace penstock
