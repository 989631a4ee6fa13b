#include "config/state_format.h"

namespace penstock {
namespace {

double BytesOfDtype(const std::string& dtype) { return dtype == "bf16" ? 2 : kFp32StateBytes; }

}  // namespace

StateFormat StateFormatOf(const TrainConfig& config, UpdatedBy optimizer) {
  StateFormat format = AdamWFormat(BytesOfDtype(config.precision));
  format.gradient = BytesOfDtype(config.optimizer.gradient_dtype);
  if (optimizer == UpdatedBy::kMuon) format.optimizer = kFp32StateBytes;  // the momentum
  if (config.optimizer.ema > 0) format.optimizer += kFp32StateBytes;
  return format;
}

}  // namespace penstock
