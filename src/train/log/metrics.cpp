#include "train/log/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/files.h"
#include "base/index.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

// MetricLine writes numbers that are not finite as null.
double NumberOf(const ordered_json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

std::optional<StepMetric> ParseMetric(const std::string& line) {
  const ordered_json object = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  try {
    StepMetric metric;
    metric.step = object.at("step").get<std::int64_t>();
    metric.loss = NumberOf(object.at("loss"));
    metric.lr = object.at("lr").get<double>();
    // Earlier versions did not write these three.
    if (object.contains("grad_norm")) metric.grad_norm = NumberOf(object.at("grad_norm"));
    metric.clipped = object.value("clipped", false);
    metric.skipped = object.value("skipped", false);
    metric.bubble = object.at("bubble").get<double>();
    metric.seconds = object.at("seconds").get<double>();
    return metric;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string MetricLine(const StepMetric& metric) {
  const ordered_json line = {{"step", metric.step},       {"loss", metric.loss},
                             {"lr", metric.lr},           {"grad_norm", metric.grad_norm},
                             {"clipped", metric.clipped}, {"skipped", metric.skipped},
                             {"bubble", metric.bubble},   {"seconds", metric.seconds}};
  return line.dump() + '\n';
}

std::vector<StepMetric> ReadMetrics(const std::string& path, std::int64_t end) {
  std::vector<StepMetric> metrics;
  std::istringstream lines(ReadFile(path).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const auto metric = ParseMetric(line);
    if (metric && metric->step < end) metrics.push_back(*metric);
  }
  return metrics;
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

MetricsFile::MetricsFile(std::string path, const std::vector<StepMetric>& earlier)
    : path_(std::move(path)) {
  for (const StepMetric& metric : earlier) earlier_ += MetricLine(metric);
}

MetricsFile::~MetricsFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

Status MetricsFile::Open() {
  if (descriptor_ >= 0) return {};
  PENSTOCK_TRY_STATUS(WriteFileAtomically(path_, earlier_));
  descriptor_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  size_ = static_cast<std::int64_t>(earlier_.size());
  if (descriptor_ >= 0) return {};
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}", path_, std::strerror(errno));
}

Status MetricsFile::Append(const StepMetric& metric) {
  PENSTOCK_TRY_STATUS(Open());
  const std::string line = MetricLine(metric);
  const ssize_t written = write(descriptor_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) {
    size_ += written;
    return {};
  }
  const std::string reason = written < 0 ? std::strerror(errno) : "the disk is full";
  const bool whole = written <= 0 || ftruncate(descriptor_, size_) == 0;
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}{}", path_, reason,
                   whole ? "" : " (its last line is incomplete)");
}

}  // namespace penstock
