#include "model_spec/state_bytes.h"

namespace penstock {

StateFormat AdamWFormat(double working) {
  StateFormat format;
  format.working = working;
  if (working < kFp32StateBytes) format.master = kFp32StateBytes;
  return format;
}

StateElements ElementsOf(double parameters, const Sharding& sharding) {
  return {parameters * sharding.Share(3), parameters * sharding.Share(1),
          parameters * sharding.Share(2), parameters * sharding.Share(1)};
}

StateBytes StatesOf(const StateElements& elements, const StateFormat& format) {
  const double version = elements.working * format.working;
  return {elements.masters * format.master + version, version, elements.gradients * format.gradient,
          elements.optimizer * format.optimizer};
}

double StepBytes(const StateElements& elements, const StateFormat& format) {
  const double written_back = format.master > 0 ? format.working : 0;
  return elements.masters *
         (format.gradient + 2 * (format.updated() + format.optimizer) + written_back);
}

}  // namespace penstock
