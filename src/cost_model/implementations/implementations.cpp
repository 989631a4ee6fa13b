#include "cost_model/implementations/implementations.h"

#include <fmt/ranges.h>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "cost_model/microbatch.h"
#include "cost_model/same_name.h"

namespace penstock {
namespace {

std::vector<Implementation> MakeImplementations() {
  return {PenstockImplementation(), TorchImplementation(), TorchCompileImplementation(),
          MegatronImplementation(), TransformerEngineImplementation()};
}

}  // namespace

StateFormat StateFormatOf(const Microbatch& batch) {
  constexpr double kBytes[] = {4, 2, 1};  // by Moments
  StateFormat format = batch.profile.get().states(batch);
  format.optimizer *= kBytes[static_cast<std::size_t>(batch.profile.moments)] / kFp32StateBytes;
  return format;
}

const std::vector<Implementation>& Implementations() {
  static const auto& all = *new std::vector<Implementation>(MakeImplementations());
  return all;
}

std::vector<std::string_view> ImplementationNames() {
  std::vector<std::string_view> names;
  for (const Implementation& each : Implementations()) names.push_back(each.name);
  return names;
}

Result<const Implementation*> FindImplementation(std::string_view name) {
  for (const Implementation& each : Implementations()) {
    if (IsSameName(each.name, name)) return &each;
  }
  const std::vector<std::string_view> names = ImplementationNames();
  return NotFound("no implementation is called {}; {}", Quote(name),
                  DidYouMean(name, names, fmt::format("there are {}", fmt::join(names, ", "))));
}

const Implementation& Profile::get() const {
  return implementation != nullptr ? *implementation : Implementations().front();
}

}  // namespace penstock
