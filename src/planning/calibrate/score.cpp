#include "calibrate/score.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/median.h"

namespace penstock {
namespace {

constexpr double kSame = 1e-9;  // relative difference of equal times

bool IsLess(double a, double b) { return a < b * (1 - kSame); }

using Rows = std::vector<const Prediction*>;

// In order of their first row.
std::vector<Rows> GroupsOf(const std::vector<Prediction>& predictions) {
  std::map<std::string_view, std::size_t> index;
  std::vector<Rows> groups;
  for (const Prediction& each : predictions) {
    if (!each.measured_step_time) continue;
    const auto [place, added] = index.emplace(each.group, groups.size());
    if (added) groups.emplace_back();
    groups[place->second].push_back(&each);
  }
  return groups;
}

double ErrorOf(const Prediction& each) { return each.step_time / *each.measured_step_time - 1; }

void AddPairs(const Rows& rows, TimeScore& score, std::size_t& in_order) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      const Prediction* faster = rows[i];
      const Prediction* slower = rows[j];
      if (IsLess(slower->measured_device_seconds, faster->measured_device_seconds)) {
        std::swap(faster, slower);
      }
      if (!IsLess(faster->measured_device_seconds, slower->measured_device_seconds)) continue;
      ++score.pairs;
      if (IsLess(faster->device_seconds, slower->device_seconds)) ++in_order;
    }
  }
}

GroupScore ScoreOf(const Rows& rows) {
  double least_predicted = rows.front()->device_seconds;
  double best = rows.front()->measured_device_seconds;
  GroupScore score{.group = rows.front()->group, .rows = rows.size()};
  for (const Prediction* each : rows) {
    least_predicted = std::min(least_predicted, each->device_seconds);
    best = std::min(best, each->measured_device_seconds);
    score.mape += std::abs(ErrorOf(*each)) / static_cast<double>(rows.size());
  }
  double chosen = 0;
  for (const Prediction* each : rows) {
    if (IsLess(least_predicted, each->device_seconds)) continue;
    chosen = std::max(chosen, each->measured_device_seconds);
  }
  score.regret = std::max(0.0, chosen / best - 1);
  score.best_found = score.regret <= kSame;
  return score;
}

void ScoreTimes(const std::vector<Prediction>& predictions, TimeScore& score) {
  std::vector<double> errors;
  for (const Prediction& each : predictions) {
    if (!each.measured_step_time) continue;
    errors.push_back(std::abs(ErrorOf(each)));
    score.bias += ErrorOf(each);
    score.mape += errors.back();
  }
  score.rows = errors.size();
  if (errors.empty()) return;
  score.bias /= static_cast<double>(errors.size());
  score.mape /= static_cast<double>(errors.size());
  score.median_error = Median(std::move(errors));
}

void ScoreMemory(const std::vector<Prediction>& predictions, MemoryScore& score) {
  for (const Prediction& each : predictions) {
    if (!each.measured_peak_bytes) continue;
    const double error = each.peak_bytes / *each.measured_peak_bytes - 1;
    ++score.rows;
    score.bias += error;
    score.mape += std::abs(error);
    if (std::abs(error) <= 0.05) ++score.within_5;
    if (std::abs(error) <= 0.1) ++score.within_10;
  }
  if (score.rows == 0) return;
  for (double* value : {&score.bias, &score.mape, &score.within_5, &score.within_10}) {
    *value /= static_cast<double>(score.rows);
  }
}

}  // namespace

Scores ScoresOf(const std::vector<Prediction>& predictions) {
  Scores scores;
  ScoreTimes(predictions, scores.time);
  ScoreMemory(predictions, scores.memory);
  std::size_t in_order = 0;
  for (const Rows& rows : GroupsOf(predictions)) {
    if (rows.size() < 2) continue;
    AddPairs(rows, scores.time, in_order);
    scores.groups.push_back(ScoreOf(rows));
  }
  if (scores.time.pairs > 0) {
    scores.time.pairs_in_order =
        static_cast<double>(in_order) / static_cast<double>(scores.time.pairs);
  }
  return scores;
}

}  // namespace penstock
