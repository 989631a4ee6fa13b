#include "train/log/step_part.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

template <class Key, class Value>
void PutMap(const std::map<Key, Value>& map, ByteWriter& writer) {
  writer.Put(static_cast<std::uint64_t>(map.size()));
  for (const auto& [key, value] : map) {
    writer.Put(key);
    writer.Put(value);
  }
}

template <class Key, class Value>
void TakeMap(ByteReader& reader, std::map<Key, Value>& map) {
  for (auto left = reader.Get<std::uint64_t>(); left > 0; --left) {
    const auto key = reader.Get<Key>();
    map[key] = reader.Get<Value>();
  }
}

}  // namespace

double StepPart::grad_norm() const {
  if (verdict) return verdict->norm;
  double sum = 0;
  for (const auto& [stage, squared] : squared_norms) sum += squared;
  return std::sqrt(sum);
}

double StepPart::IdleShare(std::int64_t busy_ns) const {
  const auto length = static_cast<double>(end_ns - start_ns);
  return length > 0 ? 1 - static_cast<double>(busy_ns) / length : 0;
}

double StepPart::bubble() const {
  std::int64_t busiest = 0;
  for (const auto& [rank, figures] : ranks) busiest = std::max(busiest, figures.busy_ns);
  return IdleShare(busiest);
}

std::vector<RankMetric> StepPart::rank_metrics() const {
  constexpr double kNsPerSecond = 1e9;
  std::vector<RankMetric> metrics;
  for (const auto& [rank, figures] : ranks) {
    metrics.push_back({static_cast<double>(figures.busy_ns) / kNsPerSecond,
                       IdleShare(figures.busy_ns), figures.peak_activation_bytes});
  }
  return metrics;
}

void StepPart::Add(const StepPart& other) {
  ranks.insert(other.ranks.begin(), other.ranks.end());
  if (other.loss) loss = other.loss;
  start_ns = std::min(start_ns, other.start_ns);
  end_ns = std::max(end_ns, other.end_ns);
  squared_norms.insert(other.squared_norms.begin(), other.squared_norms.end());
  if (other.verdict) verdict = other.verdict;
  trace_requested = trace_requested || other.trace_requested;
}

void StepPart::Put(ByteWriter& writer) const {
  PutMap(ranks, writer);
  writer.Put(loss.has_value());
  writer.Put(loss.value_or(0));
  writer.Put(start_ns);
  writer.Put(end_ns);
  PutMap(squared_norms, writer);
  writer.Put(verdict.has_value());
  writer.Put(verdict.value_or(Verdict()));
  writer.Put(trace_requested);
}

StepPart StepPart::Take(ByteReader& reader) {
  StepPart part;
  TakeMap(reader, part.ranks);
  const bool has_loss = reader.Get<bool>();
  const auto loss = reader.Get<double>();
  if (has_loss) part.loss = loss;
  part.start_ns = reader.Get<std::int64_t>();
  part.end_ns = reader.Get<std::int64_t>();
  TakeMap(reader, part.squared_norms);
  const bool has_verdict = reader.Get<bool>();
  const auto verdict = reader.Get<Verdict>();
  if (has_verdict) part.verdict = verdict;
  part.trace_requested = reader.Get<bool>();
  return part;
}

}  // namespace penstock
