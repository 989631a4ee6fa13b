#include "collective/local_group.h"

#include <utility>

#include "base/index.h"

namespace penstock {
namespace {

class GroupEnd final : public RankGroup {
 public:
  GroupEnd(std::shared_ptr<Exchanger> exchanger, int rank)
      : RankGroup(rank, exchanger->ranks()), exchanger_(std::move(exchanger)) {}
  ~GroupEnd() override { exchanger_->Leave(rank()); }

  Status Wait(Ticket ticket) override { return exchanger_->Wait(rank(), ticket); }
  void Abort(const Error& reason) override { exchanger_->Abort(reason); }

 private:
  Ticket DoStart(const CollectiveCall& call) override { return exchanger_->Start(rank(), call); }

  const std::shared_ptr<Exchanger> exchanger_;
};

}  // namespace

std::unique_ptr<RankGroup> MakeGroupEnd(std::shared_ptr<Exchanger> exchanger, int rank) {
  return std::make_unique<GroupEnd>(std::move(exchanger), rank);
}

std::vector<std::unique_ptr<RankGroup>> MakeLocalGroup(int ranks, const RankGroupOptions& options,
                                                       std::optional<LinkSpeed> link) {
  PENSTOCK_CHECK(ranks >= 1, "a group of {} ranks", ranks);
  const auto exchanger =
      std::make_shared<Exchanger>(options, std::vector<bool>(Index(ranks), true), nullptr, link);
  std::vector<std::unique_ptr<RankGroup>> ends;
  for (int rank = 0; rank < ranks; ++rank) ends.push_back(MakeGroupEnd(exchanger, rank));
  return ends;
}

}  // namespace penstock
