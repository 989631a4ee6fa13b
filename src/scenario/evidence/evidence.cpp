#include "scenario/evidence/evidence.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "cost_model/same_name.h"

namespace penstock {
namespace {

constexpr MeasuredRows kRows[] = {
#define MEASURED(...) {__VA_ARGS__},
#include "scenario/evidence/measured_tables.def"
#undef MEASURED
};

constexpr double kBeyond = 2;  // times the largest that was measured, or the smallest by as much

std::string Percent(double part) { return fmt::format("{:.1f}%", 100 * part); }

// Keeps the rows for which `is_like` is true, if there are any. Returns whether there are.
template <class IsLike>
bool Narrow(std::vector<MeasuredRows>& rows, const IsLike& is_like) {
  std::vector<MeasuredRows> like;
  std::ranges::copy_if(rows, std::back_inserter(like), is_like);
  if (like.empty()) return false;
  rows = std::move(like);
  return true;
}

Range Union(const std::vector<MeasuredRows>& rows, Range MeasuredRows::*member) {
  Range all = rows.front().*member;
  for (const MeasuredRows& each : rows) {
    all.least = std::min(all.least, (each.*member).least);
    all.most = std::max(all.most, (each.*member).most);
  }
  return all;
}

void CheckRange(std::string_view name, double value, const Range& range, Evidence& evidence) {
  if (value <= kBeyond * range.most && value >= range.least / kBeyond) return;
  evidence.outside.push_back(
      fmt::format("{:g} {} (measured: {:g} to {:g})", value, name, range.least, range.most));
}

}  // namespace

std::span<const MeasuredRows> AllMeasuredRows() { return kRows; }

int Evidence::count() const {
  int sum = 0;
  for (const MeasuredRows& each : rows) sum += each.rows;
  return sum;
}

double Evidence::error() const {
  double sum = 0;
  for (const MeasuredRows& each : rows) sum += each.rows * each.error;
  return rows.empty() ? 0 : sum / count();
}

Evidence EvidenceOf(const ModelOnCluster& model) {
  Evidence evidence;
  evidence.implementation = model.batch.profile.get().name;
  evidence.device = model.cluster.device.name;
  evidence.has_experts = model.shape.experts.has_value();
  evidence.divides_context = model.batch.context > 1;
  std::vector<MeasuredRows> rows(std::begin(kRows), std::end(kRows));
  if (!Narrow(rows, [&](const MeasuredRows& each) {
        return each.implementation == evidence.implementation;
      })) {
    return evidence;
  }
  const auto narrow = [&](const char* what, const auto& is_like) {
    if (!Narrow(rows, is_like)) evidence.outside.emplace_back(what);
  };
  narrow(evidence.has_experts ? "experts (measured: dense models)" : "a dense model",
         [&](const MeasuredRows& each) { return each.has_experts == evidence.has_experts; });
  narrow("context ranks (measured: none)", [&](const MeasuredRows& each) {
    return each.divides_context == evidence.divides_context;
  });
  const std::string device = fmt::format("{} (measured: other devices)", evidence.device);
  narrow(device.c_str(),
         [&](const MeasuredRows& each) { return IsSameName(each.device, evidence.device); });
  evidence.rows = std::move(rows);
  CheckRange("devices", model.cluster.devices(), Union(evidence.rows, &MeasuredRows::devices),
             evidence);
  CheckRange("tokens per sample", static_cast<double>(model.batch.sequence),
             Union(evidence.rows, &MeasuredRows::sequence), evidence);
  return evidence;
}

std::string Evidence::Text() const {
  const std::string kind = fmt::format("{}{}", has_experts ? "with experts" : "dense",
                                       divides_context ? ", with context ranks" : "");
  if (rows.empty()) {
    return fmt::format("no measured run tests these times of {} ({})", implementation, kind);
  }
  std::vector<std::pair<std::string_view, int>> of_tables;  // which have several kinds of rows
  std::vector<std::string_view> devices;
  for (const MeasuredRows& each : rows) {
    if (std::ranges::find(devices, each.device) == devices.end()) devices.push_back(each.device);
    const auto found = std::ranges::find(of_tables, each.table, [](auto& of) { return of.first; });
    if (found == of_tables.end()) {
      of_tables.emplace_back(each.table, each.rows);
    } else {
      found->second += each.rows;
    }
  }
  std::vector<std::string> tables;
  for (const auto& [table, count] : of_tables) {
    tables.push_back(fmt::format("{} of {}", count, table));
  }
  std::string text =
      fmt::format("times of {} ({}) were {} off in measured runs on {}: {}", implementation, kind,
                  Percent(error()), fmt::join(devices, ", "), fmt::join(tables, ", "));
  if (!outside.empty()) {
    text += fmt::format("; outside of what was measured: {}", fmt::join(outside, ", "));
  }
  return text;
}

nlohmann::ordered_json ToJson(const Evidence& evidence) {
  using Json = nlohmann::ordered_json;
  Json tables = Json::array();
  for (const MeasuredRows& each : evidence.rows) {
    tables.push_back({{"table", each.table},
                      {"device", each.device},
                      {"rows", each.rows},
                      {"error", each.error},
                      {"bias", each.bias}});
  }
  return {{"implementation", evidence.implementation},
          {"device", evidence.device},
          {"experts", evidence.has_experts},
          {"context", evidence.divides_context},
          {"rows", evidence.count()},
          {"error", evidence.rows.empty() ? Json() : Json(evidence.error())},
          {"tables", std::move(tables)},
          {"outside", evidence.outside}};
}

}  // namespace penstock
