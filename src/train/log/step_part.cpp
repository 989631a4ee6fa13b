#include "train/log/step_part.h"

namespace penstock {

double StepPart::grad_norm() const {
  if (verdict) return verdict->norm;
  double sum = 0;
  for (const auto& [stage, squared] : squared_norms) sum += squared;
  return std::sqrt(sum);
}

void StepPart::Add(const StepPart& other) {
  ranks += other.ranks;
  if (other.loss) loss = other.loss;
  busiest_ns = std::max(busiest_ns, other.busiest_ns);
  start_ns = std::min(start_ns, other.start_ns);
  end_ns = std::max(end_ns, other.end_ns);
  squared_norms.insert(other.squared_norms.begin(), other.squared_norms.end());
  if (other.verdict) verdict = other.verdict;
}

void StepPart::Put(ByteWriter& writer) const {
  writer.Put(ranks);
  writer.Put(loss.has_value());
  writer.Put(loss.value_or(0));
  writer.Put(busiest_ns);
  writer.Put(start_ns);
  writer.Put(end_ns);
  writer.Put(static_cast<std::uint64_t>(squared_norms.size()));
  for (const auto& [stage, squared] : squared_norms) {
    writer.Put(stage);
    writer.Put(squared);
  }
  writer.Put(verdict.has_value());
  writer.Put(verdict.value_or(Verdict()));
}

StepPart StepPart::Take(ByteReader& reader) {
  StepPart part;
  part.ranks = reader.Get<int>();
  const bool has_loss = reader.Get<bool>();
  const auto loss = reader.Get<double>();
  if (has_loss) part.loss = loss;
  part.busiest_ns = reader.Get<std::int64_t>();
  part.start_ns = reader.Get<std::int64_t>();
  part.end_ns = reader.Get<std::int64_t>();
  for (auto left = reader.Get<std::uint64_t>(); left > 0; --left) {
    const int stage = reader.Get<int>();
    part.squared_norms[stage] = reader.Get<double>();
  }
  const bool has_verdict = reader.Get<bool>();
  const auto verdict = reader.Get<Verdict>();
  if (has_verdict) part.verdict = verdict;
  return part;
}

}  // namespace penstock
