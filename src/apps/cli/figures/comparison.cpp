#include "cli/figures/comparison.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "report/conclusions.h"
#include "scenario/evidence/evidence.h"
#include "scenario/figures/report_run.h"

namespace penstock {
namespace {

std::string BytesText(const PricedSchedule& chosen, double messages) {
  const auto bytes = BytesAMicrobatch(chosen, messages);
  return bytes ? FormatAmount(*bytes, "B") : FormatNumber(WholeMessages(chosen, messages)) + " S";
}

std::string PeakText(const Simulated& simulated, const TableUnits& units) {
  return units.Memory(simulated.chosen, simulated.result.peak_memory) +
         (simulated.above_limit ? " > limit" : "");
}

double Messages(const Simulated& simulated) {
  return static_cast<double>(simulated.result.messages);
}

std::string NoUnit(const Simulated& /*simulated*/) { return ""; }

// Schedules without jitter have none of these figures, and are never the best.
template <double Spread::*kFigure>
double OfJitter(const Simulated& simulated) {
  return simulated.jittered ? simulated.jittered->makespan.*kFigure
                            : std::numeric_limits<double>::infinity();
}
template <double Spread::*kFigure>
std::string OfJitterText(const Simulated& simulated, const TableUnits& units) {
  if (!simulated.jittered) return "-";
  return units.Time(simulated.chosen, simulated.jittered->makespan.*kFigure);
}

constexpr std::size_t kFiguresOfJitter = 3;  // the last ones
constexpr std::array kFigures = {
    RankedFigure{
        "makespan", [](const Simulated& s) { return s.result.makespan; },
        [](const Simulated& s, const TableUnits& u) { return u.Time(s.chosen, s.result.makespan); },
        NoUnit, true},
    RankedFigure{
        "bubble", [](const Simulated& s) { return s.result.bubble; },
        [](const Simulated& s, const TableUnits&) { return FormatPercent(s.result.bubble); },
        NoUnit, false},
    RankedFigure{
        "span bubble", [](const Simulated& s) { return s.result.span_bubble; },
        [](const Simulated& s, const TableUnits&) { return FormatPercent(s.result.span_bubble); },
        NoUnit, false},
    RankedFigure{"peak memory", [](const Simulated& s) { return s.result.peak_memory; }, PeakText,
                 [](const Simulated& s) { return s.chosen.memory_unit; }, true},
    RankedFigure{
        "messages", Messages,
        [](const Simulated& s, const TableUnits&) { return fmt::format("{}", s.result.messages); },
        NoUnit, false},
    RankedFigure{
        "bytes/microbatch",
        [](const Simulated& s) {
          return BytesAMicrobatch(s.chosen, Messages(s))
              .value_or(WholeMessages(s.chosen, Messages(s)));
        },
        [](const Simulated& s, const TableUnits&) { return BytesText(s.chosen, Messages(s)); },
        [](const Simulated& s) -> std::string {
          return BytesAMicrobatch(s.chosen, Messages(s)) ? "B" : "S";
        },
        false},
    RankedFigure{"mean", OfJitter<&Spread::mean>, OfJitterText<&Spread::mean>, NoUnit, true},
    RankedFigure{"median", OfJitter<&Spread::median>, OfJitterText<&Spread::median>, NoUnit, false},
    RankedFigure{"p95", OfJitter<&Spread::p95>, OfJitterText<&Spread::p95>, NoUnit, false}};

const std::vector<std::string> kShapeColumns = {"schedule", "ranks", "chunks", "microbatches",
                                                "actions"};

std::vector<std::string> SimulatedRow(const Simulated& simulated, const TableUnits& units,
                                      std::span<const RankedFigure> figures) {
  const PricedSchedule& chosen = simulated.chosen;
  std::vector<std::string> row = {chosen.label, fmt::format("{}", chosen.params.ranks),
                                  fmt::format("{}", chosen.params.chunks),
                                  fmt::format("{}", chosen.params.microbatches)};
  row.push_back(simulated.ran() ? fmt::format("{}", simulated.result.actions) : "-");
  for (const RankedFigure& figure : figures) {
    row.push_back(simulated.ran() ? figure.text(simulated, units) : "-");
  }
  return row;
}

// The two rows below SimulatedRow, in the same columns.
std::vector<std::string> OverlapSumRow(const PricedSchedule& chosen, const SimulationResult& result,
                                       const TableUnits& units) {
  return {"  --overlap sum",
          "",
          "",
          "",
          "",
          units.Time(chosen, result.makespan),
          FormatPercent(result.bubble),
          FormatPercent(result.span_bubble),
          units.Memory(chosen, result.peak_memory),
          "",
          ""};
}

std::vector<std::string> ClosedFormRow(const PricedSchedule& chosen, const ClosedForm& form,
                                       const TableUnits& units) {
  const std::string none;
  return {"  closed form",
          "",
          "",
          "",
          "",
          form.makespan ? units.Time(chosen, *form.makespan) : none,
          form.bubble ? FormatPercent(*form.bubble) : none,
          "",
          form.peak_memory ? units.Memory(chosen, *form.peak_memory) : none,
          form.messages ? fmt::format("{}", *form.messages) : none,
          form.messages ? BytesText(chosen, static_cast<double>(*form.messages)) : none};
}

struct Comparison {
  Table table;
  std::span<const RankedFigure> figures;
  std::vector<std::size_t> rows;  // of each schedule's own figures
};

std::vector<const Simulated*> PointersTo(const std::vector<Simulated>& all) {
  std::vector<const Simulated*> pointers;
  for (const Simulated& simulated : all) pointers.push_back(&simulated);
  return pointers;
}

Comparison Compare(const std::vector<Simulated>& all) {
  Comparison comparison;
  const TableUnits units = UnitsOf(all);
  Table& table = comparison.table;
  table.columns = kShapeColumns;
  comparison.figures = RankedFigures(AnyJitter(PointersTo(all)));
  for (const RankedFigure& figure : comparison.figures) table.columns.emplace_back(figure.column);
  for (const Simulated& simulated : all) {
    comparison.rows.push_back(table.rows.size());
    table.rows.push_back(SimulatedRow(simulated, units, comparison.figures));
    if (simulated.overlap_sum) {
      table.rows.push_back(OverlapSumRow(simulated.chosen, *simulated.overlap_sum, units));
    }
    const ClosedForm form = ClosedFormOf(simulated.chosen);
    if (form.makespan || form.peak_memory) {
      table.rows.push_back(ClosedFormRow(simulated.chosen, form, units));
    }
  }
  for (auto& row : table.rows) row.resize(table.columns.size());
  return comparison;
}

void InsertRatios(Comparison& comparison, std::size_t column, const RankedFigure& figure,
                  const std::vector<Simulated>& all) {
  Table& table = comparison.table;
  const auto at = static_cast<std::ptrdiff_t>(column);
  table.columns.insert(table.columns.begin() + at, kRatioColumn);
  for (auto& row : table.rows) row.insert(row.begin() + at, "");
  for (std::size_t i = 0; i < all.size(); ++i) {
    table.rows[comparison.rows[i]][column] = RatioText(figure, all[i], all.front());
  }
}

// What -m counts, if a model has several replicas of the pipeline.
std::string MicrobatchesText(std::span<const Simulated* const> all) {
  std::set<std::int64_t> totals;
  int data = 1;
  for (const Simulated* const each : all) {
    data = std::max(data, each->chosen.data);
    totals.insert(std::int64_t{each->chosen.params.microbatches} * each->chosen.data);
  }
  if (data == 1) return "";
  return fmt::format(";\nmicrobatches are counted for each of the {} replicas, {} in all", data,
                     fmt::join(totals, ", "));
}

}  // namespace

std::string TableUnits::Time(const PricedSchedule& chosen, double time) const {
  return FormatLike(longest, chosen.time_unit)(time);
}

std::string TableUnits::Memory(const PricedSchedule& chosen, double amount) const {
  return FormatLike(most, chosen.memory_unit)(amount);
}

TableUnits UnitsOf(std::span<const Simulated* const> all) {
  TableUnits units;
  for (const Simulated* const each : all) {
    units.longest = std::max(units.longest, each->result.makespan);
    units.most = std::max(units.most, each->result.peak_memory);
  }
  return units;
}

TableUnits UnitsOf(const std::vector<Simulated>& all) { return UnitsOf(PointersTo(all)); }

std::span<const RankedFigure> RankedFigures(bool with_jitter) {
  const std::span<const RankedFigure> all = kFigures;
  return with_jitter ? all : all.first(all.size() - kFiguresOfJitter);
}

bool AnyJitter(std::span<const Simulated* const> all) {
  return std::ranges::any_of(all, [](const Simulated* each) { return each->jittered.has_value(); });
}

std::string RatioText(double value, double base) {
  return base > 0 && std::isfinite(value / base) ? fmt::format("{:.2f}x", value / base) : "-";
}

std::string RatioText(const RankedFigure& figure, const Simulated& simulated,
                      const Simulated& first) {
  const bool comparable = simulated.ran() && figure.unit(simulated) == figure.unit(first);
  return comparable ? RatioText(figure.value(simulated), figure.value(first)) : "-";
}

namespace {

// The members that ran within their limits and have the figure; none if it has several units.
std::vector<const Simulated*> Comparable(std::span<const Simulated* const> members,
                                         const RankedFigure& figure) {
  std::vector<const Simulated*> comparable;
  for (const Simulated* member : members) {
    if (figure.unit(*member) != figure.unit(*members.front())) return {};
    if (!member->ran() || member->above_limit) continue;
    if (std::isfinite(figure.value(*member))) comparable.push_back(member);
  }
  return comparable;
}

}  // namespace

std::vector<const Simulated*> BestOf(std::span<const Simulated* const> members,
                                     const RankedFigure& figure) {
  constexpr double kRounding = 1e-9;
  std::vector<const Simulated*> best = Comparable(members, figure);
  double least = std::numeric_limits<double>::infinity();
  for (const Simulated* member : best) least = std::min(least, figure.value(*member));
  std::erase_if(best, [&](const Simulated* member) {
    return figure.value(*member) > least + kRounding * std::abs(least);
  });
  return best;
}

void MarkBest(Table& table, std::size_t column, const RankedFigure& figure,
              std::span<const Simulated* const> members, std::span<const std::size_t> rows) {
  const std::vector<const Simulated*> best = BestOf(members, figure);
  if (best.size() == Comparable(members, figure).size()) return;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (std::ranges::find(best, members[i]) != best.end()) table.best.insert({rows[i], column});
  }
}

Table ComparisonTable(const std::vector<Simulated>& all) { return Compare(all).table; }

Table RankedTable(const std::vector<Simulated>& all) {
  Comparison comparison = Compare(all);
  if (all.size() < 2) return std::move(comparison.table);
  const std::vector<const Simulated*> members = PointersTo(all);
  std::size_t column = kShapeColumns.size();
  for (const RankedFigure& figure : comparison.figures) {
    MarkBest(comparison.table, column++, figure, members, comparison.rows);
    if (figure.ratio) InsertRatios(comparison, column++, figure, all);
  }
  return std::move(comparison.table);
}

namespace {

std::string WhoseActivations(const PricedSchedule& chosen) {
  if (!chosen.model) return "activations are measured ones, too (docs/profile.md)";
  const Implementation& implementation = chosen.model->batch.profile.get();
  if (&implementation != &Implementations().front()) {
    return fmt::format("activations are counted as {} saves them (docs/cost_model.md)",
                       implementation.name);
  }
  return "activations are counted as Penstock's stages save them; kernels that fuse norms save "
         "less (docs/cost_model.md)";
}

}  // namespace

std::string ConclusionsText(const Scenario& scenario, const std::vector<Simulated>& all) {
  const ReportInput input = ExplainedReport(scenario, all);
  std::string text;
  for (const std::string& sentence : Conclusions(input, input.runs)) text += sentence + '\n';
  if (input.advice) text += fmt::format("{}:\n  {}\n", input.advice->text, input.advice->command);
  return text.empty() ? text : text + '\n';
}

std::string UnitsText(std::span<const Simulated* const> all) {
  const bool in_bytes = !all.empty() && !all.front()->chosen.memory_unit.empty();
  const bool of_model = !all.empty() && !all.front()->chosen.about.empty();
  std::string text = of_model
                         ? "Peak memory counts activations only; " + all.front()->chosen.about +
                               ";\n" + WhoseActivations(all.front()->chosen)
                     : !all.empty() && all.front()->chosen.time_unit == "s"
                         ? "Times are medians of the recorded run"
                         : "Time in the unit of --cost";
  if (!all.empty() && all.front()->chosen.model) {
    text += ";\n" + EvidenceOf(*all.front()->chosen.model).Text();
  }
  text += MicrobatchesText(all);
  if (!in_bytes) text += "; memory in activations of one rank's share of one microbatch";
  if (!all.empty() && all.front()->chosen.costs.message_bytes == 0) {
    text += ";\nS is the size of the tensor between two stages (--message-bytes)";
  }
  const auto jittered = std::ranges::find_if(
      all, [](const Simulated* simulated) { return simulated->jittered.has_value(); });
  if (jittered != all.end()) {
    text += fmt::format(";\nmean, median and p95 are of the makespans of {} runs with jitter",
                        (*jittered)->chosen.jitter->runs);
  }
  const bool overlaps = std::any_of(all.begin(), all.end(), [](const Simulated* simulated) {
    return simulated->overlap_sum.has_value();
  });
  if (overlaps) {
    text +=
        ".\nAn overlapped forward and backward take the longer of the two; with --overlap sum, F + "
        "B";
  }
  return text + ".\n";
}

std::string UnitsText(const std::vector<Simulated>& all) { return UnitsText(PointersTo(all)); }

std::string MarksText(const Table& table, bool has_groups) {
  std::string text;
  if (!table.best.empty()) text = has_groups ? "* the best value of its group" : "* the best value";
  if (std::find(table.columns.begin(), table.columns.end(), kRatioColumn) != table.columns.end()) {
    text += fmt::format("{}{}: ratio to the {}first row", text.empty() ? "" : "; ", kRatioColumn,
                        has_groups ? "group's " : "");
  }
  return text.empty() ? text : text + ".\n";
}

}  // namespace penstock
