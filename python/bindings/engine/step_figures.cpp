#include "bindings/engine/step_figures.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "base/index.h"
#include "graph/device/device_queue.h"

namespace penstock::python {
namespace {

// The caller's stream reads tensors that a rank's stream has allocated, and may free them then.
void ReadHere(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.is_cpu()) continue;
    const c10::impl::VirtualGuardImpl impl(tensor.device().type());
    KeepUntilRead({&tensor, 1}, impl.getStream(tensor.device()));
  }
}

}  // namespace

// Every process with a last stage sends the losses of the steps, then the figures. Of a value that
// it does not have, it sends NaN.
Status StepFigures::Gather(Collectives& processes, const OwnFigures* own,
                           std::span<const Tensors> reports, std::vector<double>& losses) {
  values_.clear();
  if (own != nullptr) values_ = ValuesOf(*own, reports);
  if (processes.processes() == 1) return {};
  const std::size_t steps = losses.size();
  std::vector<double> values = losses;
  if (own == nullptr || !own->has_final) std::ranges::fill(values, std::nan(""));
  values.insert(values.end(), values_.begin(), values_.end());
  std::string sent(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  if (values_.empty()) sent.clear();
  PENSTOCK_TRY(const std::vector<std::string> all, processes.AllGather(std::move(sent)));
  values.clear();
  for (const std::string& one : all) {
    if (one.empty()) continue;
    std::vector<double> theirs(one.size() / sizeof(double));
    std::memcpy(theirs.data(), one.data(), one.size());
    values.resize(theirs.size(), std::nan(""));
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      if (!std::isnan(theirs[i])) values[i] = theirs[i];
    }
  }
  PENSTOCK_CHECK(values.size() >= steps, "no process has sent the losses of the last stage");
  const auto end_of_losses = values.begin() + static_cast<std::ptrdiff_t>(steps);
  losses.assign(values.begin(), end_of_losses);
  values_.assign(end_of_losses, values.end());
  return {};
}

std::vector<double> StepFigures::ValuesOf(const OwnFigures& own,
                                          std::span<const Tensors> reports) const {
  std::vector<double> values(1 + reports.size() * Index(1 + metrics_), std::nan(""));
  if (own.has_final) {
    values[0] = own.norm;
    std::ranges::copy(own.losses, values.begin() + 1);
  }
  for (std::size_t index = 0; index < reports.size(); ++index) {
    const std::size_t metrics = std::min(Index(metrics_), reports[index].size());
    for (std::size_t metric = 0; metric < metrics; ++metric) {
      values[1 + reports.size() + index * Index(metrics_) + metric] =
          reports[index][metric].item<float>();
    }
  }
  return values;
}

std::vector<Tensors> StepFigures::OutputsOf(std::span<const Tensors> reports) const {
  std::vector<Tensors> outputs;
  for (const Tensors& of : reports) {
    ReadHere(of);
    outputs.emplace_back(of.begin() + std::min(std::ssize(of), std::ptrdiff_t{metrics_}), of.end());
  }
  return outputs;
}

}  // namespace penstock::python
