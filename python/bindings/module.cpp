#include "bindings/bindings.h"

NB_MODULE(_core, module) {
  namespace nb = nanobind;
  module.doc() = "The core of Penstock: schedules as data. Import penstock instead.";
  nb::exception<penstock::python::PythonError>(module, "Error", PyExc_ValueError).doc() =
      "What is wrong, where, and what to do, in one line.";
  penstock::python::AddScheduleTypes(module);
  penstock::python::AddCostTypes(module);
  penstock::python::AddSimulationTypes(module);
}
