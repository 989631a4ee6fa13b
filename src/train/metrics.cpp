#include "train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/files.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

// A loss that is not finite is written as null.
double LossOf(const ordered_json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

std::optional<StepMetric> ParseMetric(const std::string& line) {
  const ordered_json object = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  try {
    return StepMetric{object.at("step").get<std::int64_t>(), LossOf(object.at("loss")),
                      object.at("lr").get<double>(), object.at("bubble").get<double>(),
                      object.at("seconds").get<double>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string MetricLine(const StepMetric& metric) {
  const ordered_json line = {{"step", metric.step},
                             {"loss", metric.loss},
                             {"lr", metric.lr},
                             {"bubble", metric.bubble},
                             {"seconds", metric.seconds}};
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
  if (descriptor_ >= 0) return {};
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}", path_, std::strerror(errno));
}

Status MetricsFile::Append(const StepMetric& metric) {
  PENSTOCK_TRY_STATUS(Open());
  const std::string line = MetricLine(metric);
  const ssize_t written = write(descriptor_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return {};
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}", path_,
                   written < 0 ? std::strerror(errno) : "the disk is full");
}

}  // namespace penstock
