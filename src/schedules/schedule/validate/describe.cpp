// A fault as text for people.
#include <algorithm>

#include "schedule/text/text.h"
#include "schedule/validate/validate.h"

namespace penstock {
namespace {

// Returns one line with the actions around a place, which is in brackets.
std::string Neighborhood(const Lane& lane, int position) {
  constexpr int kAround = 4;  // actions shown on either side
  const auto size = static_cast<int>(lane.size());
  const int begin = std::max(0, position - kAround);
  const int end = std::min(size, position + kAround + 1);
  std::string text = begin > 0 ? "..." : "";
  for (int i = begin; i < end; ++i) {
    const std::string cell = ToText(lane[i]);
    if (!text.empty()) text += ' ';
    text += i == position ? fmt::format("[{}]", cell) : cell;
  }
  return text + (end < size ? " ...\n" : "\n");
}

// Returns the position of the last action of the same stage and microbatch, or else of the same
// stage; -1 if there is none. The missing action belongs near it.
int NearestTo(const std::string& missing, const Lane& lane) {
  const Result<Action> action = ParseAction(missing);
  if (!action) return -1;
  const Part& wanted = action->first;
  int same_stage = -1, nearest = -1;
  for (std::size_t i = 0; i < lane.size(); ++i) {
    ForEachPart(lane[i], [&](const Part& part) {
      if (part.stage != wanted.stage) return;
      same_stage = static_cast<int>(i);
      if (part.microbatch == wanted.microbatch) nearest = same_stage;
    });
  }
  return nearest >= 0 ? nearest : same_stage;
}

}  // namespace

std::string Line(const Fault& fault) {
  std::string place;
  const auto add = [&place](const std::string& text) {
    place += (place.empty() ? "" : ", ") + text;
  };
  if (fault.rank >= 0) add(fmt::format("rank {}", fault.rank));
  if (fault.position >= 0) add(fmt::format("position {}", fault.position));
  if (!fault.action.empty()) add(fault.action);
  return place.empty() ? fault.reason : fmt::format("{}: {}", place, fault.reason);
}

Status RequireValid(const Schedule& schedule, std::string_view label) {
  const std::vector<Fault> faults = Validate(schedule, {.max_faults = 1});
  if (faults.empty()) return {};
  return InvalidArgument("{} is not a valid schedule: {}", label, Line(faults.front()));
}

std::string Describe(const Schedule& schedule, const Fault& fault) {
  std::string text = Line(fault) + "\n";
  std::vector<LanePosition> cycle = fault.cycle;
  if (cycle.empty()) cycle.push_back({fault.rank, fault.position});
  for (const LanePosition& waiting : cycle) {
    const std::size_t rank = waiting.rank;
    if (waiting.rank < 0 || rank >= schedule.lanes.size()) continue;
    const Lane& lane = schedule.lanes[rank];
    const bool missing = waiting.position < 0;
    const int position = missing ? NearestTo(fault.action, lane) : waiting.position;
    if (position < 0) continue;
    const std::string name = missing            ? "nearest to it: "
                             : cycle.size() > 1 ? fmt::format("rank {}: ", waiting.rank)
                                                : "";
    text += fmt::format("    {}{}", name, Neighborhood(lane, position));
  }
  return text;
}

}  // namespace penstock
