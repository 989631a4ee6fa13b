// Costs: price lists as text, and the costs of a schedule's stages.
#include "schedule/costs.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "base/files.h"
#include "base/text/yaml_map.h"
#include "bindings/core/binding.h"
#include "bindings/core/frozen_schedule.h"
#include "bindings/core/scenario_costs.h"
#include "cost_model/published_models.h"

namespace penstock::python {
namespace {

// Python reads a stage's costs as an array of doubles.
static_assert(sizeof(StageCosts) == std::size(kStageCosts) * sizeof(double));

struct StageTable {
  std::vector<StageCosts> stages;
};

}  // namespace

void AddCostTypes(nb::module_& module) {
  nb::class_<StageTable>(module, "StageTable").def("rows", [](nb::handle self) {
    return BytesOf(nb::cast<const StageTable&>(self).stages, self);
  });
  nb::class_<ScenarioCosts>(module, "ScenarioCosts", "Costs that belong to no schedule yet.")
      .def_static(
          "parse", [](const std::string& yaml) { return ValueOf(ScenarioCosts::Parse(yaml)); },
          "yaml"_a)
      .def_static(
          "of_fields",
          [](const std::string& json) {
            auto costs = ScenarioCosts::Parse(json);
            if (!costs) ThrowWithoutLine(std::move(costs).error());
            return std::move(*costs);
          },
          "json"_a)
      .def_static(
          "load",
          [](const std::string& path) {
            const std::string yaml = ValueOf(ReadFile(path, kYamlFile));
            auto list = ScenarioCosts::Parse(yaml);
            if (!list) throw PythonError(In(path, std::move(list).error()));
            return std::move(*list);
          },
          "path"_a)
      .def(
          "save",
          [](const ScenarioCosts& self, const std::string& path) {
            Require(WriteFileAtomically(path, self.Text()));
          },
          "path"_a)
      .def("text", &ScenarioCosts::Text)
      .def_prop_ro("time_unit", &ScenarioCosts::time_unit)
      .def_prop_ro("memory_unit", &ScenarioCosts::memory_unit)
      .def(
          "stages",
          [](const ScenarioCosts& self, const FrozenSchedule& schedule) {
            return StageTable{ValueOf(self.PriceOf(*schedule)).costs.stages};
          },
          "schedule"_a);
  nb::class_<StageCost>(module, "StageCost", "One cost of a stage.")
      .def_ro("name", &StageCost::name)
      .def_ro("meaning", &StageCost::meaning)
      .def_prop_ro("is_memory", &StageCost::is_memory)
      .def_ro("in_files", &StageCost::in_files);
  module.def("stage_costs",
             [] { return std::vector<StageCost>(std::begin(kStageCosts), std::end(kStageCosts)); });
  module.def("models", &PublishedModelNames);
  module.def("devices", &DeviceNames);
}

}  // namespace penstock::python
