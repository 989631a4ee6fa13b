#include "collective/rank_group.h"

#include <numeric>
#include <utility>

#include "base/index.h"

namespace penstock {
namespace {

template <class... Args>
Status RefuseCall(CollectiveKind kind, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(In(NameOf(kind), {ErrorCode::kInvalidArgument,
                                          fmt::format(format, std::forward<Args>(args)...)}));
}

Status CheckWholeElements(const CollectiveCall& call) {
  const std::size_t size = BytesOfElement(call.type);
  if (call.input.size() % size == 0 && call.output.size() % size == 0) return {};
  return RefuseCall(call.kind, "{} and {} bytes are not whole elements of {}", call.input.size(),
                    call.output.size(), NameOf(call.type));
}

Status CheckSize(const CollectiveCall& call, std::string_view what, std::size_t bytes,
                 std::size_t expected) {
  if (bytes == expected) return {};
  return RefuseCall(call.kind, "the {} has {} bytes instead of {}", what, bytes, expected);
}

Status CheckBlocks(const CollectiveCall& call, std::string_view what, std::size_t bytes,
                   const std::vector<std::size_t>& blocks, std::size_t ranks) {
  if (blocks.size() != ranks) {
    return RefuseCall(call.kind, "the {} has {} block sizes, but the group has {} ranks", what,
                      blocks.size(), ranks);
  }
  return CheckSize(call, what, bytes,
                   std::accumulate(blocks.begin(), blocks.end(), std::size_t{0}));
}

Status CheckRoot(const CollectiveCall& call, int ranks) {
  if (call.root >= 0 && call.root < ranks) return {};
  return RefuseCall(call.kind, "root {} is not one of the {} ranks", call.root, ranks);
}

Status CheckCall(const CollectiveCall& call, int ranks) {
  const std::size_t count = Index(ranks);
  switch (call.kind) {
    case CollectiveKind::kAllGather:
      return CheckSize(call, "output", call.output.size(), call.input.size() * count);
    case CollectiveKind::kReduceScatter:
      PENSTOCK_TRY_STATUS(CheckWholeElements(call));
      return CheckSize(call, "input", call.input.size(), call.output.size() * count);
    case CollectiveKind::kReduce:
      PENSTOCK_TRY_STATUS(CheckRoot(call, ranks));
      [[fallthrough]];
    case CollectiveKind::kAllReduce:
      PENSTOCK_TRY_STATUS(CheckWholeElements(call));
      return CheckSize(call, "output", call.output.size(), call.input.size());
    case CollectiveKind::kAllToAll:
      PENSTOCK_TRY_STATUS(CheckBlocks(call, "input", call.input.size(), call.send_bytes, count));
      return CheckBlocks(call, "output", call.output.size(), call.receive_bytes, count);
    case CollectiveKind::kBroadcast:
      return CheckRoot(call, ranks);
    case CollectiveKind::kBarrier:
      break;
  }
  return {};
}

}  // namespace

std::string_view NameOf(CollectiveKind kind) {
  constexpr std::string_view kNames[] = {"all-gather", "reduce-scatter", "all-reduce", "all-to-all",
                                         "broadcast",  "reduce",         "barrier"};
  return kNames[static_cast<std::size_t>(kind)];
}

Result<RankGroup::Ticket> RankGroup::Start(const CollectiveCall& call) {
  PENSTOCK_TRY_STATUS(CheckCall(call, ranks_));
  return DoStart(call);
}

Result<RankGroup::Ticket> RankGroup::AllGather(ConstBytes input, Bytes output) {
  return Start({.kind = CollectiveKind::kAllGather, .input = input, .output = output});
}

Result<RankGroup::Ticket> RankGroup::ReduceScatter(ConstBytes input, Bytes output,
                                                   ElementType type) {
  return Start(
      {.kind = CollectiveKind::kReduceScatter, .input = input, .output = output, .type = type});
}

Result<RankGroup::Ticket> RankGroup::AllReduce(ConstBytes input, Bytes output, ElementType type) {
  return Start(
      {.kind = CollectiveKind::kAllReduce, .input = input, .output = output, .type = type});
}

Result<RankGroup::Ticket> RankGroup::AllToAll(ConstBytes input, Bytes output) {
  if (input.size() % Index(ranks_) != 0 || input.size() != output.size()) {
    const Status refused =
        RefuseCall(CollectiveKind::kAllToAll,
                   "{} bytes of input and {} of output are not {} equal blocks each", input.size(),
                   output.size(), ranks_);
    return tl::unexpected(refused.error());
  }
  const std::vector<std::size_t> blocks(Index(ranks_), input.size() / Index(ranks_));
  return AllToAll(input, blocks, output, blocks);
}

Result<RankGroup::Ticket> RankGroup::AllToAll(ConstBytes input, std::vector<std::size_t> send_bytes,
                                              Bytes output,
                                              std::vector<std::size_t> receive_bytes) {
  return Start({.kind = CollectiveKind::kAllToAll,
                .input = input,
                .output = output,
                .send_bytes = std::move(send_bytes),
                .receive_bytes = std::move(receive_bytes)});
}

Result<RankGroup::Ticket> RankGroup::Broadcast(Bytes data, int root) {
  return Start({.kind = CollectiveKind::kBroadcast, .input = data, .output = data, .root = root});
}

Result<RankGroup::Ticket> RankGroup::Reduce(ConstBytes input, Bytes output, ElementType type,
                                            int root) {
  return Start({.kind = CollectiveKind::kReduce,
                .input = input,
                .output = output,
                .type = type,
                .root = root});
}

Result<RankGroup::Ticket> RankGroup::Barrier() { return Start({}); }

}  // namespace penstock
