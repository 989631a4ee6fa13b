// Each op is a struct: Empty returns the result without values, and Start fills it in.
#include "graph/ops/c10d_collective.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "graph/ops/c10d_groups.h"
#include "graph/ops/c10d_names.h"
#include "graph/ops/collective_forms.h"

namespace penstock {
namespace {

// A collective that has started. `buffer` becomes the result; undefined: c10d fills in the result.
struct StartedWork {
  c10::intrusive_ptr<c10d::Work> work;
  at::Tensor buffer = {};
};

// gloo has no mean, so "avg" is a sum that is divided after the wait.
bool IsMean(const std::string& op) { return op == "avg"; }

c10d::ReduceOp::RedOpType ReduceOpOf(const std::string& op) {
  if (op == "sum" || IsMean(op)) return c10d::ReduceOp::SUM;
  if (op == "max") return c10d::ReduceOp::MAX;
  if (op == "min") return c10d::ReduceOp::MIN;
  throw std::runtime_error("a graph reduces by sum, avg, min or max, but not by " + op);
}

at::Tensor EmptyRows(const at::Tensor& x, std::int64_t rows) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  if (sizes.empty()) sizes.push_back(1);
  sizes[0] = rows;
  return at::empty(sizes, x.options());
}

std::int64_t RowsOf(const at::Tensor& x) { return x.dim() == 0 ? 1 : x.size(0); }

struct C10dAllReduce {
  static constexpr const char* kName = "c10d_all_reduce";
  static at::Tensor Empty(const at::Tensor& x, const std::string&) {
    return at::empty(x.sizes(), x.options());
  }
  static StartedWork Start(const C10dMember& member, const at::Tensor& x, at::Tensor result,
                           const std::string& op, std::chrono::milliseconds timeout) {
    std::vector<at::Tensor> tensors{result.copy_(x)};
    return {member.group->allreduce(tensors, {.reduceOp = ReduceOpOf(op), .timeout = timeout})};
  }
};

struct C10dAllGather {
  static constexpr const char* kName = "c10d_all_gather";
  static at::Tensor Empty(const at::Tensor& x, std::int64_t ranks) {
    return EmptyRows(x, RowsOf(x) * ranks);
  }
  static StartedWork Start(const C10dMember& member, at::Tensor x, at::Tensor result,
                           std::int64_t /*ranks*/, std::chrono::milliseconds timeout) {
    return {AllGatherSingle(*member.group, result, x, {.timeout = timeout})};
  }
};

struct C10dReduceScatter {
  static constexpr const char* kName = "c10d_reduce_scatter";
  static at::Tensor Empty(const at::Tensor& x, const std::string&, std::int64_t ranks) {
    return EmptyRows(x, RowsOf(x) / ranks);
  }
  static StartedWork Start(const C10dMember& member, at::Tensor x, at::Tensor result,
                           const std::string& op, std::int64_t /*ranks*/,
                           std::chrono::milliseconds timeout) {
    if (!x.is_cpu()) {
      return {ReduceScatterSingle(*member.group, result, x,
                                  {.reduceOp = ReduceOpOf(op), .timeout = timeout})};
    }
    // gloo reduces whole tensors, too, but with a work that can only be waited for.
    std::vector<at::Tensor> whole{x.clone()};
    const auto work =
        member.group->allreduce(whole, {.reduceOp = ReduceOpOf(op), .timeout = timeout});
    const std::int64_t rows = RowsOf(result);
    return {work, whole.front().narrow(0, member.group->getRank() * rows, rows)};
  }
};

struct C10dAllToAll {
  static constexpr const char* kName = "c10d_all_to_all";
  static at::Tensor Empty(const at::Tensor& x, at::IntArrayRef received, at::IntArrayRef) {
    return EmptyRows(x, std::accumulate(received.begin(), received.end(), std::int64_t{0}));
  }
  static StartedWork Start(const C10dMember& member, at::Tensor x, at::Tensor result,
                           at::IntArrayRef received, at::IntArrayRef sent,
                           std::chrono::milliseconds timeout) {
    std::vector<std::int64_t> to = received.vec(), from = sent.vec();
    return {AllToAllSingle(*member.group, result, x, to, from, {.timeout = timeout})};
  }
};

struct C10dBroadcast {
  static constexpr const char* kName = "c10d_broadcast";
  static at::Tensor Empty(const at::Tensor& x, std::int64_t) {
    return at::empty(x.sizes(), x.options());
  }
  static StartedWork Start(const C10dMember& member, const at::Tensor& x, at::Tensor result,
                           std::int64_t source, std::chrono::milliseconds timeout) {
    std::vector<at::Tensor> tensors{result.copy_(x)};
    return {member.group->broadcast(tensors, {.rootRank = source, .timeout = timeout})};
  }
};

// What a collective needs until it is waited for.
struct InFlight {
  StartedWork started;
  std::shared_ptr<C10dRun> run;
  at::Tensor input, result;
  int divisor = 1;
};

class Tickets {
 public:
  std::int64_t Add(InFlight collective) {
    const MutexLock lock(mutex_);
    in_flight_.emplace(next_, std::move(collective));
    return next_++;
  }
  InFlight Take(std::int64_t ticket) {
    const MutexLock lock(mutex_);
    return std::move(in_flight_.extract(ticket).mapped());
  }

 private:
  Mutex mutex_;
  std::map<std::int64_t, InFlight> in_flight_ PENSTOCK_GUARDED_BY(mutex_);
  std::int64_t next_ PENSTOCK_GUARDED_BY(mutex_) = 0;
};
Tickets& AllTickets() {
  static Tickets tickets;
  return tickets;
}

at::Tensor WaitForResult(std::int64_t ticket) {
  const InFlight collective = AllTickets().Take(ticket);
  if (collective.run) {
    collective.run->Wait(collective.started.work);
  } else {
    collective.started.work->wait();
  }
  if (collective.started.buffer.defined()) collective.result.copy_(collective.started.buffer);
  if (collective.divisor > 1) collective.result.div_(collective.divisor);
  return collective.result;
}

template <class First, class... Rest>
bool IsMeanOf(const First& first, const Rest&...) {
  if constexpr (std::is_convertible_v<First, std::string>) return IsMean(first);
  return false;
}

// The kernels of an op that has the arguments Args between x and the group. torch registers
// derivatives of c10d in Python, which ranks must not reach.
template <class Op, class... Args>
struct C10dKernels : CollectiveForms<C10dKernels<Op, Args...>, Args...> {
  static constexpr const char* kName = Op::kName;

  static at::Tensor Empty(const at::Tensor& x, Args... args) { return Op::Empty(x, args...); }
  static std::int64_t StartOn(std::int64_t group, const at::Tensor& x, Args... args) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const C10dMember member = C10dMember::Of(group);
    const at::Tensor input = x.contiguous(), result = Op::Empty(x, args...);
    const auto timeout = member.run ? member.run->timeout() : c10d::kUnsetTimeout;
    StartedWork started = Op::Start(member, input, result, args..., timeout);
    const int divisor = IsMeanOf(args...) ? member.group->getSize() : 1;
    return AllTickets().Add({std::move(started), member.run, input, result, divisor});
  }
  static at::Tensor WaitOn(std::int64_t /*group*/, std::int64_t ticket) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return WaitForResult(ticket);
  }
};

using C10dAllReduceKernels = C10dKernels<C10dAllReduce, std::string>;
using C10dAllGatherKernels = C10dKernels<C10dAllGather, std::int64_t>;
using C10dReduceScatterKernels = C10dKernels<C10dReduceScatter, std::string, std::int64_t>;
using C10dAllToAllKernels = C10dKernels<C10dAllToAll, at::IntArrayRef, at::IntArrayRef>;
using C10dBroadcastKernels = C10dKernels<C10dBroadcast, std::int64_t>;

TORCH_LIBRARY_FRAGMENT(penstock, library) {
  DefineCollective(library, "c10d_all_reduce", "str op, ");
  DefineCollective(library, "c10d_all_gather", "int ranks, ");
  DefineCollective(library, "c10d_reduce_scatter", "str op, int ranks, ");
  DefineCollective(library, "c10d_all_to_all", "int[] received, int[] sent, ");
  DefineCollective(library, "c10d_broadcast", "int source, ");
}
TORCH_LIBRARY_IMPL(penstock, CompositeExplicitAutograd, library) {  // of all devices
  C10dAllReduceKernels::Register(library);
  C10dAllGatherKernels::Register(library);
  C10dReduceScatterKernels::Register(library);
  C10dAllToAllKernels::Register(library);
  C10dBroadcastKernels::Register(library);
}
TORCH_LIBRARY_IMPL(penstock, Meta, library) {
  C10dAllReduceKernels::RegisterShapes(library);
  C10dAllGatherKernels::RegisterShapes(library);
  C10dReduceScatterKernels::RegisterShapes(library);
  C10dAllToAllKernels::RegisterShapes(library);
  C10dBroadcastKernels::RegisterShapes(library);
}

}  // namespace

void SumOverC10dGroup(std::int64_t group, std::span<double> numbers) {
  const auto size = static_cast<std::int64_t>(numbers.size());
  const at::Tensor own = at::empty({size}, at::TensorOptions().dtype(at::kDouble));
  std::ranges::copy(numbers, own.mutable_data_ptr<double>());
  const at::Tensor sum = C10dAllReduceKernels::Whole(own, "sum", group);
  std::copy_n(sum.const_data_ptr<double>(), size, numbers.begin());
}

void AllReduceOverC10dGroup(std::int64_t group, const std::string& op, const at::Tensor& tensor) {
  const at::NoGradGuard no_gradients;
  tensor.copy_(C10dAllReduceKernels::Whole(tensor, op, group));
}

}  // namespace penstock
