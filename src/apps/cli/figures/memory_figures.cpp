#include "cli/figures/memory_figures.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/index.h"
#include "cli/figures/comparison.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::string ActionText(const Simulated& simulated, std::size_t rank) {
  const int action = simulated.memory[rank].peak.action;
  if (action == MemoryPeak::kNoAction) return "-";
  return ToText(simulated.chosen.schedule.lanes[rank][Index(action)]);
}

std::vector<std::size_t> KindsHeld(const Simulated& simulated) {
  std::vector<std::size_t> kinds;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    if (Holds(simulated.memory, static_cast<MemoryKind>(kind))) kinds.push_back(kind);
  }
  return kinds;
}

Json PeakJson(const Simulated& simulated, std::size_t rank) {
  const MemoryPeak& peak = simulated.memory[rank].peak;
  Json by_kind = Json::object();
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    by_kind[std::string(NameOf(static_cast<MemoryKind>(kind)))] = peak.by_kind[kind];
  }
  return {{"amount", peak.amount},
          {"time", peak.time},
          {"action", peak.action == MemoryPeak::kNoAction ? Json(nullptr)
                                                          : Json(ActionText(simulated, rank))},
          {"in_flight", peak.in_flight},
          {"by_kind", std::move(by_kind)}};
}

}  // namespace

Table MemoryTable(const Simulated& simulated) {
  const PricedSchedule& chosen = simulated.chosen;
  Table table;
  table.title = "Memory of " + chosen.label;
  table.columns = {"rank", "peak", "at", "action", "in flight"};
  double most = 0;
  for (const RankMemory& rank : simulated.memory) most = std::max(most, rank.peak.amount);
  const AmountFormat memory = FormatLike(most, chosen.memory_unit);
  const AmountFormat time = FormatLike(simulated.result.makespan, chosen.time_unit);
  const std::vector<std::size_t> kinds = KindsHeld(simulated);
  for (const std::size_t kind : kinds) {
    table.columns.emplace_back(NameOf(static_cast<MemoryKind>(kind)));
  }
  for (std::size_t rank = 0; rank < simulated.memory.size(); ++rank) {
    const MemoryPeak& peak = simulated.memory[rank].peak;
    std::vector<std::string> row = {fmt::format("{}", rank), memory(peak.amount), time(peak.time),
                                    ActionText(simulated, rank),
                                    fmt::format("{}", fmt::join(peak.in_flight, " + "))};
    for (const std::size_t kind : kinds) {
      row.push_back(memory(peak.by_kind[kind]));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table MemoryCsvTable(const std::vector<Simulated>& all) {
  Table table;
  table.columns = {"schedule", "rank", "peak", "time", "action", "in_flight"};
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    table.columns.emplace_back(NameOf(static_cast<MemoryKind>(kind)));
  }
  for (const Simulated& simulated : all) {
    for (std::size_t rank = 0; rank < simulated.memory.size(); ++rank) {
      const MemoryPeak& peak = simulated.memory[rank].peak;
      std::vector<std::string> row = {
          simulated.chosen.label,         fmt::format("{}", rank),
          fmt::format("{}", peak.amount), fmt::format("{}", peak.time),
          ActionText(simulated, rank),    fmt::format("{}", fmt::join(peak.in_flight, "+"))};
      for (const double amount : peak.by_kind) row.push_back(fmt::format("{}", amount));
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

std::string MemoryText(const std::vector<Simulated>& all) {
  const Simulated& first = all.front();
  if (CountsMessages(first) && first.chosen.costs.message_bytes > 0) return "";
  return "Messages are not counted: memory is not in bytes, or the size of a message is unknown "
         "(--message-bytes).\n";
}

Json MemoryJson(const Simulated& simulated) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < simulated.memory.size(); ++rank) {
    Json timelines = Json::object();
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
      Json& points = timelines[std::string(NameOf(static_cast<MemoryKind>(kind)))] = Json::array();
      for (const MemoryPoint& point : simulated.memory[rank].curves[kind]) {
        points.push_back({point.time, point.amount});
      }
    }
    ranks.push_back({{"peak", PeakJson(simulated, rank)}, {"timelines", std::move(timelines)}});
  }
  return ranks;
}

}  // namespace penstock
