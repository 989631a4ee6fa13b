#include "graph/ops/module_scope.h"

#include <utility>

namespace penstock {
namespace {

thread_local ModuleKind current_module = ModuleKind::kNone;

}  // namespace

ModuleScope::ModuleScope(ModuleKind kind) : outer_(std::exchange(current_module, kind)) {}
ModuleScope::~ModuleScope() { current_module = outer_; }

ModuleKind ModuleScope::Current() { return current_module; }

}  // namespace penstock
