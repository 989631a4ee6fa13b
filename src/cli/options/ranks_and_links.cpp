// The options of ScheduleOptions that say how fast ranks are, how and over which links they send
// messages, and how long their collectives take.
#include <algorithm>
#include <map>

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "cli/help/offered_values.h"
#include "cli/options/option_values.h"
#include "cli/options/schedule_options.h"
#include "schedule/pricing/rank_speed.h"

namespace penstock {
namespace {

Result<std::pair<int, double>> ParseSlowRank(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos) {
    const auto rank = ParseInt(text.substr(0, equals));
    const auto factor = ParseNumber(text.substr(equals + 1));
    if (rank && factor) return std::pair(*rank, *factor);
  }
  return InvalidArgument("--slow-rank {}: give a rank and its factor (3=1.2)", Quote(text));
}

}  // namespace

void ScheduleOptions::DefineSpeed(CLI::App& app) {
  AddTime(app, "--launch", launch,
          "Time that every F, I, W, B and RECOMPUTE takes in addition, in the unit of --cost; with "
          "--model, a time with its unit (5us)");
  app.add_option("--slow-rank", slow_ranks,
                 "A rank that takes FACTOR times as long for all its actions (3=1.2); repeatable")
      ->allow_extra_args(false)
      ->type_name("RANK=FACTOR");
  Offer(AddText(app, "--transfers", transfers,
                "What ranks do while messages are in flight: asynchronous (default), blocking "
                "(wait until "
                "results have arrived) or batched (send and receive together, as Megatron-LM does)")
            ->type_name("HOW"),
        {kTransfersNames.begin(), kTransfersNames.end()});
  AddInt(app, "--offload-sharing", offload_sharing,
         "Consecutive ranks that share one link to the slower pool in each direction (default 1)");
}

Status ScheduleOptions::SetSpeed(const Placement& placement, Costs& costs) const {
  if (launch) {
    const Status status = CheckTime(launch->value);
    if (!status) return InvalidArgument("--launch {}: {}", launch->text, status.error().line());
    AddLaunches(costs, launch->value);
  }
  std::map<int, double> factors;
  for (const std::string& text : slow_ranks) {
    PENSTOCK_TRY(const auto slow, ParseSlowRank(text));
    if (!factors.insert(slow).second) {
      return InvalidArgument("--slow-rank {}: rank {} is given twice", Quote(text), slow.first);
    }
  }
  const Status status = SlowDown(costs, placement, factors);
  if (!status) return InvalidArgument("--slow-rank: {}", status.error().line());
  costs.offload_sharing = offload_sharing.value_or(1);
  if (costs.offload_sharing <= placement.ranks()) return {};
  return InvalidArgument("--offload-sharing {}: the schedule has {} ranks; give at most as many",
                         costs.offload_sharing, placement.ranks());
}

double ScheduleOptions::LargestScale() const {
  double largest = stage_costs || !layer_costs.empty() ? 0 : 1;
  if (stage_costs) {
    for (const StageCosts& stage : *stage_costs) largest = std::max(largest, stage.message_scale);
  }
  for (const LayerGroup& group : layer_costs) {
    largest = std::max(largest, group.costs.message_scale);
  }
  return largest;
}

Result<double> ScheduleOptions::LongestMessage(int ranks, double bytes) const {
  const double time = topology.LongestTime(ranks, bytes * LargestScale());
  const Status status = CheckTime(time);
  if (!status) {
    return InvalidArgument("--topology: the time of a message {}", status.error().line());
  }
  return time;
}

Status ScheduleOptions::SetTransfers(Costs& costs) const {
  if (transfers) {
    const auto parsed = ParseTransfers(*transfers);
    if (!parsed) return InvalidArgument("--transfers {}", parsed.error().line());
    costs.transfers = *parsed;
  }
  const bool scaled = std::ranges::any_of(
      costs.stages, [](const StageCosts& stage) { return stage.message_scale != 1; });
  if (scaled && costs.message_bytes == 0) {
    return InvalidArgument("{}: message_scale has no effect without a size; give --message-bytes",
                           stage_costs ? "--stage-costs" : "--layer-costs");
  }
  if (topology.empty()) return {};
  if (comm) {
    return InvalidArgument(
        "--comm: the levels of topology have latencies of their own; leave it out");
  }
  for (const LinkLevel& level : topology.levels) {
    if (level.bandwidth == 0 || costs.message_bytes > 0) continue;
    return InvalidArgument("--topology: level {} has a bandwidth; give --message-bytes",
                           Quote(level.name));
  }
  costs.topology = topology;
  return {};
}

Status ScheduleOptions::SetCollectives(const ChosenSchedule& chosen, const PassOptions& priced,
                                       Costs& costs) const {
  if (!collectives) return priced.RefuseReduced();
  if (priced_model.given()) {
    return InvalidArgument(
        "--collectives: --model determines them by --data and --nodes; leave "
        "them out");
  }
  for (const char* key : {"unshard", "reduce"}) {
    if (!priced.PriceOf(key)) continue;
    return InvalidArgument(
        "--price {}: the times of collectives follow from their sizes; leave it "
        "out",
        key);
  }
  if (chosen.memory_unit.empty()) {
    return InvalidArgument(
        "--collectives: their sizes must be in bytes; give --activation-bytes, or stage_costs with "
        "units");
  }
  const std::optional<double> reduced = priced.PriceOf("reduced");
  if (!priced.PriceOf("gathered") && !reduced) {
    return InvalidArgument(
        "--collectives: no size is given; give --price gathered, and reduced if gradients differ");
  }
  const double chunks = chosen.schedule.placement.chunks();
  const Status status =
      PriceCollectives(*collectives, chosen.activation,
                       reduced ? std::optional(*reduced / chunks) : std::nullopt, costs);
  if (!status) return InvalidArgument("--collectives: {}", status.error().line());
  return {};
}

}  // namespace penstock
