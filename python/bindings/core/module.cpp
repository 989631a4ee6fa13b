#include "bindings/core/binding.h"

NB_MODULE(_core, module) {
  nanobind::set_leak_warnings(false);  // with torch, modules may outlive the interpreter
  namespace nb = nanobind;
  using namespace penstock::python;
  module.doc() = "The core of Penstock: schedules as data. Import penstock instead.";
  nb::exception<PythonError>(module, "Error", PyExc_ValueError).doc() =
      "What is wrong, where, and what to do, in one line.";
  AddScheduleTypes(module);
  AddCostTypes(module);
  AddCatalog(module);
  AddRunTypes(module);
  AddExplanation(module);
  AddReports(module);
  AddScenarios(module);
  AddPlans(module);
  module.attr("__version__") = PENSTOCK_VERSION;
}
