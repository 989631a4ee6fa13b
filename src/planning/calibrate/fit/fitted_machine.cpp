#include "calibrate/fit/fitted_machine.h"

#include <algorithm>

namespace penstock {
namespace {

std::string ReleaseOf(const MachineConstant& constant) {
  for (const auto& [column, value] : constant.of) {
    if (column == "release") return value;
  }
  return "";
}

}  // namespace

std::string ConstantText(const ConstantValue& constant, double value) {
  const bool is_time =
      std::holds_alternative<std::optional<std::string> Scenario::*>(constant.field->member);
  return is_time ? fmt::format("{:.4g}us", value * 1e6) : fmt::format("{:.4g}", value);
}

MachineFile FittedMachine(const Fit& fit, const std::string& path) {
  MachineFile machine;
  machine.remark = fmt::format("Fitted by penstock calibrate to {} rows of {}: mean error {:.1f}%",
                               fit.rows, path, fit.mape * 100);
  if (fit.cross_validated) {
    machine.remark += fmt::format(", {:.1f}% of rows left out", *fit.cross_validated * 100);
  }
  for (const ConstantValue& value : fit.values) {
    MachineConstant constant{std::string(value.field->name), value.of,
                             ConstantText(value, value.value), ""};
    if (!value.at_bound) constant.error = ConstantText(value, value.error);
    machine.constants.push_back(std::move(constant));
  }
  std::ranges::stable_sort(machine.constants, {}, ReleaseOf);
  return machine;
}

}  // namespace penstock
