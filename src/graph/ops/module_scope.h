// ModuleScope: a model declares which of its ops belong to attention or to the MLP.
#pragma once

#include "graph/ir/ir.h"

namespace penstock {

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
