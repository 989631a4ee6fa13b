// Why a run takes as long as it does: bubbles by cause, and the critical path.
#include "explain/explanation.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstddef>

#include "base/index.h"
#include "bindings/core/binding.h"
#include "bindings/core/run.h"

namespace penstock::python {
namespace {

// What the Python code views as structured arrays.
static_assert(sizeof(Bubble) == 40 && offsetof(Bubble, cause) == 16 &&
              offsetof(Bubble, before) == 20 && offsetof(Bubble, waits_for) == 28);
static_assert(sizeof(ActionAt) == 8);

std::unique_ptr<Explanation> ExplainRun(const Run& run, std::optional<double> memory_limit) {
  std::optional<MemoryBound> bound;
  if (memory_limit) {
    if (!(*memory_limit > 0)) Refuse("memory_limit {}: more than 0 is needed", *memory_limit);
    if (!run.costs) Refuse("memory_limit: the timeline has no costs; give them to from_times");
    bound.emplace(*run.costs, *memory_limit);
  }
  return std::make_unique<Explanation>(
      Explain(*run.schedule, run.timeline(), run.messages(), bound));
}

}  // namespace

void AddExplanation(nb::module_& module) {
  nb::class_<Explanation>(module, "Explanation")
      .def(
          "bubbles",
          [](nb::handle self, int rank) {
            const auto& bubbles = nb::cast<const Explanation&>(self).bubbles;
            if (rank < 0 || Index(rank) >= bubbles.size()) throw nb::index_error("no such rank");
            return BytesOf(bubbles[Index(rank)], self);
          },
          "rank"_a)
      .def("totals",
           [](const Explanation& self) {
             const TimeByCause totals = TotalsOf(self.bubbles);
             return std::vector<double>(totals.begin(), totals.end());
           })
      .def("critical_path", [](nb::handle self) {
        return BytesOf(nb::cast<const Explanation&>(self).critical_path, self);
      });
  module.def("explain", &ExplainRun, "run"_a, "memory_limit"_a.none(),
             nb::call_guard<nb::gil_scoped_release>());
  module.def("bubble_causes", [] {
    std::vector<std::string> names;
    for (std::size_t cause = 0; cause < kBubbleCauses; ++cause) {
      names.emplace_back(NameOf(static_cast<BubbleCause>(cause)));
    }
    return names;
  });
}

}  // namespace penstock::python
