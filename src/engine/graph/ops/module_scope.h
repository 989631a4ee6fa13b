// ModuleScope: a model declares which of its ops belong to attention or to the MLP.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "graph/ir/ir.h"

namespace penstock {

inline constexpr std::array kModuleNames = {
    std::pair(ModuleKind::kAttention, std::string_view("attention")),
    std::pair(ModuleKind::kMlp, std::string_view("mlp"))};

// While it lives, ops that capture records on this thread belong to `kind`. The innermost scope
// decides; kNone excludes ops from an outer one. Outside of capture, it has no effect.
class ModuleScope {
 public:
  explicit ModuleScope(ModuleKind kind);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

  // Returns the kind of this thread's innermost scope, or kNone.
  static ModuleKind Current();

 private:
  ModuleKind outer_;
};

}  // namespace penstock
