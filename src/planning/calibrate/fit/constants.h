// Constants of the machine that a fit may change: fields of the scenario with a range to search in
// (scenario/fields.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "calibrate/measured_run.h"
#include "scenario/fields.h"

namespace penstock {

// A constant with the columns by which its value differs.
struct FitConstant {
  const ScenarioField* field = nullptr;
  std::vector<std::string_view> per;
};

// All of them, and their names.
std::vector<const ScenarioField*> MachineFields();
std::vector<std::string_view> MachineFieldNames();

// Returns the constants of these names. `per` is empty for the usual columns: the device and, for
// flops_efficiency, the precision and the release of the software. Errors: kInvalidArgument for
// other names and names given twice.
Result<std::vector<FitConstant>> FindConstants(std::span<const std::string> names,
                                               const std::vector<std::string_view>& per);
// Returns the sets of columns by which values of the constant may differ, the usual one first.
std::vector<std::vector<std::string_view>> UsualColumns(const ScenarioField& field);

// One value of a constant, for the runs that agree in the constant's columns.
struct ConstantValue {
  const ScenarioField* field = nullptr;
  std::vector<std::pair<std::string, std::string>> of = {};  // columns with their values
  double value = 0;
  double error = 0;  // standard error, in the unit of the value
  bool at_bound = false;
  std::size_t rows = 0;
};

// A search moves in the logarithm of a value whose range begins above 0, and else in parts of the
// range.
double ToSearch(const ScenarioField& field, double value);
double FromSearch(const ScenarioField& field, double at);
// The derivative of FromSearch.
double SlopeOf(const ScenarioField& field, double at);

// Sets a constant: a number or a time.
void SetConstant(const ScenarioField& field, double value, Scenario& scenario);
// Returns the scenario's value, or else its implementation's.
double ConstantOf(const ScenarioField& field, const Scenario& scenario);

}  // namespace penstock
