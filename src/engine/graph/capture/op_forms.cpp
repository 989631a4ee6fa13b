#include "graph/capture/op_forms.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {
namespace {

bool TakesAllOf(const c10::OperatorHandle& op, std::span<const c10::Argument> arguments) {
  return std::ranges::equal(
      op.schema().arguments(), arguments,
      [](const auto& one, const auto& other) { return *one.type() == *other.type(); });
}

}  // namespace

std::optional<c10::OperatorHandle> FunctionalForm(const c10::OperatorHandle& op) {
  c10::OperatorName name = op.operator_name();
  // The only pair whose overload names differ.
  if (name == c10::OperatorName("aten::bernoulli_", "float")) name.overload_name = "p";
  if (name.name.empty() || name.name.back() != '_') return std::nullopt;
  name.name.pop_back();
  const std::string plain = name.name;
  for (const char* suffix : {"", "_functional"}) {
    name.name = plain + suffix;
    for (const std::string& prefix : {std::string(), std::string("Tensor_")}) {
      const auto found =
          c10::Dispatcher::singleton().findSchema({name.name, prefix + name.overload_name});
      if (found && found->schema().returns().size() == 1 && MutatedArgument(found->schema()) < 0 &&
          TakesAllOf(*found, op.schema().arguments())) {
        return *found;
      }
    }
  }
  return std::nullopt;
}

std::optional<c10::OperatorHandle> WithoutOut(const c10::OperatorHandle& op) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  c10::OperatorName name = op.operator_name();
  std::string& overload = name.overload_name;
  if (arguments.back().name() != "out" || op.schema().returns().size() != 1) return std::nullopt;
  const bool has_prefix = overload.ends_with("_out");
  overload.resize(has_prefix ? overload.size() - 4 : 0);
  for (const char* more : {"", "Tensor"}) {
    if (!has_prefix) overload = more;
    const auto found = c10::Dispatcher::singleton().findSchema(name);
    if (found && TakesAllOf(*found, std::span(arguments).first(arguments.size() - 1)))
      return *found;
  }
  return std::nullopt;
}

}  // namespace penstock
