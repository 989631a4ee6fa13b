// Functional tests of Megatron-LM.
#include "calibrate/formats/format.h"

namespace penstock {

Result<RunTexts> ReadMegatronTestsRow(const CsvRow& row) {
  return RefuseCell(row, "platform", "is not priced");
}

}  // namespace penstock
