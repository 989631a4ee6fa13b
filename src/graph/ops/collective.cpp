#include "graph/ops/collective.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <map>

#include "base/result.h"
#include "graph/ir/graph_tools.h"

namespace penstock {
namespace {

constexpr const char* kAllToAll = "penstock::all_to_all";
constexpr const char* kAllToAllStart = "penstock::all_to_all_start";
constexpr const char* kAllToAllWait = "penstock::all_to_all_wait";

thread_local bool collectives_disabled = false;

thread_local std::map<int, std::unique_ptr<Collective>> endpoints;  // by group

Collective& FindEndpoint(std::int64_t group) {
  const auto found = endpoints.find(static_cast<int>(group));
  if (found == endpoints.end()) {
    throw std::runtime_error(fmt::format(
        "a collective uses group {}, which this thread has not joined; create a GroupEndpoint",
        group));
  }
  return *found->second;
}

at::Tensor ResultLike(const at::Tensor& x) {
  return at::empty_like(x, x.options().memory_format(at::MemoryFormat::Contiguous));
}

at::Tensor Start(const at::Tensor& x, std::int64_t group) {
  at::Tensor ticket = at::empty({1}, at::TensorOptions().dtype(at::kLong));
  auto& number = *ticket.mutable_data_ptr<std::int64_t>();
  number = -1;
  if (collectives_disabled) return ticket;
  Collective& endpoint = FindEndpoint(group);
  if (!x.is_contiguous()) throw std::runtime_error("all_to_all: the tensor is not contiguous");
  if (x.dim() == 0 || x.size(0) % endpoint.ranks() != 0) {
    throw std::runtime_error(fmt::format("all_to_all: {} ranks cannot split {} rows evenly",
                                         endpoint.ranks(), x.dim() == 0 ? 0 : x.size(0)));
  }
  number = endpoint.StartAllToAll({static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()});
  return ticket;
}

at::Tensor Wait(const at::Tensor& ticket, const at::Tensor& x, std::int64_t group) {
  if (collectives_disabled) return at::zeros_like(x, at::MemoryFormat::Contiguous);
  at::Tensor result = ResultLike(x);
  FindEndpoint(group).Wait(*ticket.const_data_ptr<std::int64_t>(),
                           {static_cast<std::byte*>(result.mutable_data_ptr()), result.nbytes()});
  return result;
}

at::Tensor Whole(const at::Tensor& x, std::int64_t group) {
  const at::Tensor sent = x.contiguous();
  return Wait(Start(sent, group), sent, group);
}

at::Tensor StartShape(const at::Tensor& x, std::int64_t) {
  return at::empty({1}, x.options().dtype(at::kLong));
}
at::Tensor WaitShape(const at::Tensor&, const at::Tensor& x, std::int64_t) { return ResultLike(x); }
at::Tensor ExchangedShape(const at::Tensor& x, std::int64_t) { return ResultLike(x); }

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct AllToAllFunction : torch::autograd::Function<AllToAllFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, std::int64_t group) {
    context->saved_data["group"] = group;
    const at::AutoDispatchBelowADInplaceOrView below;
    return AllToAll(x.contiguous(), static_cast<int>(group));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto group = static_cast<int>(context->saved_data["group"].toInt());
    return {AllToAll(gradients[0], group), at::Tensor()};
  }
};

at::Tensor WithGradient(const at::Tensor& x, std::int64_t group) {
  return AllToAllFunction::apply(x, group);
}

TORCH_LIBRARY_FRAGMENT(penstock, library) {
  library.def("all_to_all(Tensor x, int group) -> Tensor");
  library.def("all_to_all_start(Tensor x, int group) -> Tensor");
  library.def("all_to_all_wait(Tensor ticket, Tensor x, int group) -> Tensor");
}
TORCH_LIBRARY_IMPL(penstock, CPU, library) {
  library.impl("all_to_all", Whole);
  library.impl("all_to_all_start", Start);
  library.impl("all_to_all_wait", Wait);
}
TORCH_LIBRARY_IMPL(penstock, Meta, library) {
  library.impl("all_to_all", ExchangedShape);
  library.impl("all_to_all_start", StartShape);
  library.impl("all_to_all_wait", WaitShape);
}
TORCH_LIBRARY_IMPL(penstock, Autograd, library) { library.impl("all_to_all", WithGradient); }

}  // namespace

GroupEndpoint::GroupEndpoint(int group, std::unique_ptr<Collective> collective) : group_(group) {
  const bool is_new = endpoints.try_emplace(group, std::move(collective)).second;
  PENSTOCK_CHECK(is_new, "this thread has already joined group {}", group);
}
GroupEndpoint::~GroupEndpoint() { endpoints.erase(group_); }

DisableCollectivesGuard::DisableCollectivesGuard()
    : previous_(std::exchange(collectives_disabled, true)) {}
DisableCollectivesGuard::~DisableCollectivesGuard() { collectives_disabled = previous_; }

at::Tensor AllToAll(const at::Tensor& x, int group) {
  static const auto op = FindOp(kAllToAll, "").typed<at::Tensor(const at::Tensor&, std::int64_t)>();
  return op.call(x, group);
}

TensorType TicketType() { return {at::kLong, {1}, {1}}; }

std::optional<SplitCollective> SplitOf(const Node& node) {
  if (node.op.operator_name().name != kAllToAll) return std::nullopt;
  return SplitCollective{FindOp(kAllToAllStart, ""), FindOp(kAllToAllWait, "")};
}

std::int64_t GroupOf(const Node& node) {
  return std::get<c10::IValue>(node.arguments.back()).toInt();
}

bool IsCollective(const Node& node) {
  const std::string& name = node.op.operator_name().name;
  return name == kAllToAll || name == kAllToAllStart || name == kAllToAllWait;
}

}  // namespace penstock
