#include "simulate/free_links.h"

#include <algorithm>
#include <limits>

#include "base/index.h"

namespace penstock {

FreeLinks::FreeLinks(const Costs& costs, int ranks)
    : topology_(costs.topology), comm_(costs.comm), paths_(Index(ranks)) {
  for (std::size_t level = 0; level < topology_.levels.size(); ++level) {
    first_link_.push_back(links_.size());
    links_.resize(links_.size() + 2 * (Index(topology_.OwnerOf(level, ranks - 1)) + 1));
  }
}

void FreeLinks::Clear() {
  for (Link& link : links_) {
    for (std::vector<Use>& uses : link.ordered) uses.clear();
    link.others.clear();
  }
}

std::size_t FreeLinks::LinkOf(std::size_t level, int rank, bool receives) const {
  const bool second = receives && !topology_.levels[level].half_duplex;
  return first_link_[level] + 2 * Index(topology_.OwnerOf(level, rank)) + (second ? 1 : 0);
}

const FreeLinks::Path& FreeLinks::PathOf(int from, int to) {
  std::vector<Path>& paths = paths_[Index(from)];
  for (const Path& path : paths) {
    if (path.to == to) return path;
  }
  const std::size_t level = topology_.LevelOf(from, to);
  const LinkLevel& links = topology_.levels[level];
  paths.push_back(
      {to, links.latency, links.bandwidth, {LinkOf(level, from, false), LinkOf(level, to, true)}});
  return paths.back();
}

double FreeLinks::Send(int from, int to, double time, double bytes) {
  if (topology_.empty()) return time + comm_;
  const Path& path = PathOf(from, to);
  if (path.bandwidth == 0 || bytes == 0) return time + path.latency;
  const Use use{time, time + bytes / path.bandwidth};
  const auto [out, in] = path.links;
  Add(use, links_[out]);
  if (in != out) Add(use, links_[in]);
  return use.end + path.latency;
}

void FreeLinks::Add(const Use& use, Link& link) {
  for (std::vector<Use>& uses : link.ordered) {
    if (!uses.empty() && use.begin < uses.back().begin) continue;
    uses.push_back(use);
    return;
  }
  link.others.push_back(use);
}

bool FreeLinks::IsShared(Link& link) {
  auto& [first, second] = link.ordered;
  const auto earlier = [](const Use& a, const Use& b) { return a.begin < b.begin; };
  if (!link.others.empty()) {
    first.insert(first.end(), link.others.begin(), link.others.end());
    std::ranges::sort(first, earlier);
  }
  double free_from = -std::numeric_limits<double>::infinity();
  auto a = first.begin();
  auto b = second.begin();
  while (a != first.end() || b != second.end()) {
    const bool takes_first = b == second.end() || (a != first.end() && !earlier(*b, *a));
    const Use& use = takes_first ? *a++ : *b++;
    if (use.begin < free_from) return true;
    free_from = use.end;
  }
  return false;
}

bool FreeLinks::WereShared() { return std::ranges::any_of(links_, IsShared); }

}  // namespace penstock
