#include "monitor/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "base/files.h"
#include "base/index.h"
#include "base/text/strict_json.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

// MetricLine writes numbers that are not finite as null.
double NumberOf(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

// Throws if an array is shorter than the first one. Numbers that a count cannot hold are errors.
Result<std::vector<RankMetric>> RanksOf(const nlohmann::json& object) {
  if (!object.contains("busy")) return std::vector<RankMetric>();
  PENSTOCK_TRY(const auto peaks, CountsMember(object, "peak_activation_bytes", "the step"));
  if (peaks.size() != object.at("busy").size()) return InvalidArgument("ranks are missing");
  std::vector<RankMetric> ranks(peaks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].busy = object.at("busy").at(rank).get<double>();
    ranks[rank].bubble = object.at("rank_bubble").at(rank).get<double>();
    ranks[rank].peak_activation_bytes = peaks[rank];
  }
  return ranks;
}

void AddRanks(const std::vector<RankMetric>& ranks, ordered_json& line) {
  if (ranks.empty()) return;
  ordered_json busy, bubble, peak;
  for (const RankMetric& rank : ranks) {
    busy.push_back(rank.busy);
    bubble.push_back(std::round(rank.bubble * 1e4) / 1e4);
    peak.push_back(rank.peak_activation_bytes);
  }
  line["busy"] = std::move(busy);
  line["rank_bubble"] = std::move(bubble);
  line["peak_activation_bytes"] = std::move(peak);
}

template <class Metric>
std::vector<Metric> ReadLines(const std::string& path, std::int64_t end,
                              std::optional<Metric> (*parse)(std::string_view line)) {
  std::vector<Metric> metrics;
  std::istringstream lines(ReadFile(path).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    auto metric = parse(line);
    if (metric && metric->step < end) metrics.push_back(*std::move(metric));
  }
  return metrics;
}

}  // namespace

std::string MetricLine(const StepMetric& metric) {
  ordered_json line = {{"step", metric.step},
                       {"loss", metric.loss},
                       {"lr", metric.lr},
                       {"grad_norm", metric.grad_norm},
                       {"clipped", metric.clipped},
                       {"skipped", metric.skipped},
                       {"bubble", metric.bubble},
                       {"seconds", metric.seconds},
                       {"tokens_per_second", metric.tokens_per_second}};
  AddRanks(metric.ranks, line);
  return line.dump() + '\n';
}

std::string MetricLine(const HeldOutMetric& metric) {
  const ordered_json line = {{"step", metric.step}, {"held_out_loss", metric.loss}};
  return line.dump() + '\n';
}

std::optional<StepMetric> ParseMetric(std::string_view line) {
  const auto object = ParseStrictJson(line);
  if (!object) return std::nullopt;
  const auto step = CountMember(*object, "step", "the line");
  if (!step) return std::nullopt;
  try {
    StepMetric metric{.step = static_cast<std::int64_t>(*step)};
    metric.loss = NumberOf(object->at("loss"));
    metric.lr = object->at("lr").get<double>();
    // Earlier versions did not write these three, nor the figures of ranks.
    if (object->contains("grad_norm")) metric.grad_norm = NumberOf(object->at("grad_norm"));
    metric.clipped = object->value("clipped", false);
    metric.skipped = object->value("skipped", false);
    metric.bubble = object->at("bubble").get<double>();
    metric.seconds = object->at("seconds").get<double>();
    metric.tokens_per_second = object->value("tokens_per_second", 0.0);
    auto ranks = RanksOf(*object);
    if (!ranks) return std::nullopt;
    metric.ranks = *std::move(ranks);
    return metric;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::optional<HeldOutMetric> ParseHeldOut(std::string_view line) {
  const auto object = ParseStrictJson(line);
  if (!object) return std::nullopt;
  const auto step = CountMember(*object, "step", "the line");
  if (!step) return std::nullopt;
  try {
    return HeldOutMetric{static_cast<std::int64_t>(*step), NumberOf(object->at("held_out_loss"))};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::vector<StepMetric> ReadMetrics(const std::string& path, std::int64_t end) {
  return ReadLines(path, end, ParseMetric);
}

std::vector<HeldOutMetric> ReadHeldOut(const std::string& path, std::int64_t end) {
  return ReadLines(path, end, ParseHeldOut);
}

Status CheckSkipped(const std::vector<StepMetric>& metrics) {
  const auto check = [&](std::size_t count, const char* which) -> Status {
    const auto skipped =
        std::count_if(metrics.end() - static_cast<std::ptrdiff_t>(count), metrics.end(),
                      [](const auto& step) { return step.skipped; });
    if (2 * Index(skipped) <= count) return {};
    return MakeError(ErrorCode::kUnavailable,
                     "{} of the {}{} steps were skipped because their gradients were not finite: "
                     "use a smaller optimizer.lr",
                     skipped, which, count);
  };
  PENSTOCK_TRY_STATUS(check(metrics.size(), ""));
  return check((metrics.size() + 9) / 10, "last ");
}

MetricsFile::MetricsFile(std::string path, const std::vector<StepMetric>& earlier,
                         const std::vector<HeldOutMetric>& held_out)
    : file_(std::move(path)) {
  auto loss = held_out.begin();
  for (const StepMetric& metric : earlier) {
    for (; loss != held_out.end() && loss->step < metric.step; ++loss)
      earlier_ += MetricLine(*loss);
    earlier_ += MetricLine(metric);
  }
  for (; loss != held_out.end(); ++loss) earlier_ += MetricLine(*loss);
}

Status MetricsFile::Open() { return file_.is_open() ? Status() : file_.Open(earlier_); }

Status MetricsFile::Append(const StepMetric& metric) {
  PENSTOCK_TRY_STATUS(Open());
  return file_.Append(MetricLine(metric));
}

Status MetricsFile::Append(const HeldOutMetric& metric) {
  PENSTOCK_TRY_STATUS(Open());
  return file_.Append(MetricLine(metric));
}

}  // namespace penstock
