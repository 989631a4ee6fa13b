// KernelFor: converts the members of a group to the steps of a kernel.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>

#include "graph/fuse/group.h"

namespace penstock {
namespace {

class KernelBuilder {
 public:
  KernelBuilder(const Graph& graph, const FuseGroup& group)
      : graph_(graph), group_(group), order_(LoopOrder(group)) {
    const std::vector<bool> row = RowDims(group).value();
    for (const std::size_t dim : order_) kernel().loops.push_back(group.sizes[dim]);
    kernel().inner = static_cast<int>(std::count(row.begin(), row.end(), true));
    has_rows_ = kernel().inner > 0;
    if (!has_rows_) kernel().inner = 1;
  }

  FusedKernel Build(const std::vector<std::size_t>& stored) {
    for (const std::size_t member : stored) Store(group_.members[member]);
    for (const FuseMember& member : group_.members) {
      if (member.accumulates) Accumulate(member);
    }
    MergeLoops();
    return std::move(built_);
  }

 private:
  using Mask = std::vector<bool>;  // by dim: whether it is reversed

  Kernel& kernel() { return built_.kernel; }

  int Add(KernelStep step) {
    kernel().steps.push_back(std::move(step));
    return static_cast<int>(kernel().steps.size()) - 1;
  }

  // Returns the access with strides by loop and mirrored dims reversed.
  KernelAccess Ordered(const KernelAccess& access, const Mask& mirrored) const {
    KernelAccess ordered{access.offset, {}};
    for (const std::size_t dim : order_) {
      const std::int64_t stride = access.strides[dim];
      ordered.strides.push_back(mirrored[dim] ? -stride : stride);
      if (mirrored[dim]) ordered.offset += stride * (group_.sizes[dim] - 1);
    }
    return ordered;
  }

  void Store(const FuseMember& member) {
    const FuseAccess& output = member.accesses[0];
    const TensorType& type = graph_.value(output.root).type;
    const Mask as_is(group_.sizes.size(), false);
    const int value = Value(member, as_is);
    Add({.kind = StepKind::kStore,
         .arguments = {value},
         .tensor = static_cast<int>(kernel().outputs.size()),
         .dtype = type.dtype,
         .access = Ordered(output.at, as_is)});
    kernel().outputs.push_back(type);
  }

  void Accumulate(const FuseMember& member) {
    const Mask as_is(group_.sizes.size(), false);
    const int value = Operand(member.accesses[1], as_is);
    Add({.kind = StepKind::kAccumulate,
         .arguments = {value},
         .tensor = static_cast<int>(kernel().outputs.size()),
         .access = Ordered(member.accesses[0].at, as_is)});
  }

  bool IsBf16(const FuseAccess& access) const {
    return access.root != kNoValue && graph_.value(access.root).type.dtype == c10::kBFloat16;
  }

  int Load(const FuseAccess& access, const Mask& mirrored) {
    KernelAccess at = Ordered(access.at, mirrored);
    auto& loaded = loads_[access.root];
    for (const auto& [known, step] : loaded) {
      if (known == at) return step;
    }
    const auto input = std::find(built_.inputs.begin(), built_.inputs.end(), access.root);
    const auto number = static_cast<int>(input - built_.inputs.begin());
    if (input == built_.inputs.end()) built_.inputs.push_back(access.root);
    const int step = Add({.kind = StepKind::kLoad,
                          .tensor = number,
                          .dtype = graph_.value(access.root).type.dtype,
                          .access = at});
    loaded.emplace_back(std::move(at), step);
    return step;
  }

  int Number(double number) {
    const auto bits = std::bit_cast<std::uint64_t>(number);  // 0 and -0 are different numbers
    const auto found = numbers_.find(bits);
    if (found != numbers_.end()) return found->second;
    return numbers_[bits] = Add({.kind = StepKind::kNumber, .number = number});
  }

  int Operand(const FuseAccess& access, Mask mirrored) {
    if (access.root == kNoValue) return Number(access.number);
    const int producer = ProducerOf(group_, access.root);
    if (producer < 0) return Load(access, mirrored);
    const FuseMember& written = group_.members[producer];
    Mask reversed(mirrored.size(), false);
    IsMirrored(group_, written.accesses[0].at, access.at, reversed);
    for (std::size_t i = 0; i < mirrored.size(); ++i) mirrored[i] = mirrored[i] != reversed[i];
    return Value(written, mirrored);
  }

  // Returns the step that computes the member's value, with mirrored dims reversed.
  int Value(const FuseMember& member, const Mask& mirrored) {
    const auto key = std::make_pair(member.node, mirrored);
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    std::vector<int> operands;
    for (std::size_t i = 1; i < member.accesses.size(); ++i) {
      operands.push_back(Operand(member.accesses[i], mirrored));
    }
    int value = operands[0];
    if (!member.reduced.empty()) {
      value = Add({.kind = StepKind::kSum, .arguments = operands});
      if (member.op == "mean") {
        const int count = Number(static_cast<double>(member.count));
        value = Add({.op = "div", .arguments = {value, count}});
      }
    } else if (member.op != "copy") {
      value = Add({.op = member.op, .arguments = operands});
    }
    // Code may depend on the rounding: it quantizes by a cast, or compensates sums for it.
    if (IsBf16(member.accesses[0]) && !(member.op == "copy" && IsBf16(member.accesses[1]))) {
      value = Add({.op = "round", .arguments = {value}});
    }
    return values_[key] = value;
  }

  // Merges adjacent loops that all tensors traverse as a single loop would.
  void MergeLoops() {
    for (std::size_t i = kernel().loops.size() - 1; i-- > 0;) {
      const auto outer = std::ssize(kernel().loops) - kernel().inner;
      const auto at = static_cast<std::ptrdiff_t>(i);
      if (has_rows_ && at + 1 == outer) continue;  // keeps rows separate
      if (!CanMerge(i)) continue;
      for (KernelStep& step : kernel().steps) {
        if (!step.access.strides.empty())
          step.access.strides.erase(step.access.strides.begin() + at);
      }
      kernel().loops[i + 1] *= kernel().loops[i];
      kernel().loops.erase(kernel().loops.begin() + at);
      if (has_rows_ && at >= outer) --kernel().inner;
    }
  }

  bool CanMerge(std::size_t i) {
    return std::all_of(kernel().steps.begin(), kernel().steps.end(), [&](const KernelStep& step) {
      const auto& strides = step.access.strides;
      return strides.empty() || strides[i] == strides[i + 1] * kernel().loops[i + 1];
    });
  }

  const Graph& graph_;
  const FuseGroup& group_;
  const std::vector<std::size_t> order_;
  bool has_rows_ = false;
  FusedKernel built_;
  std::map<ValueId, std::vector<std::pair<KernelAccess, int>>> loads_;
  std::map<std::uint64_t, int> numbers_;  // by bits
  std::map<std::pair<int, Mask>, int> values_;
};

}  // namespace

FusedKernel KernelFor(const Graph& graph, const FuseGroup& group,
                      const std::vector<std::size_t>& stored) {
  return KernelBuilder(graph, group).Build(stored);
}

}  // namespace penstock
