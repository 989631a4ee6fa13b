// penstock calibrate: predictions of a table of measured runs, and constants fitted to them.
#include <fmt/ranges.h>

#include <map>

#include "base/files.h"
#include "base/units.h"
#include "calibrate/fit/fit.h"
#include "calibrate/fit/fitted_machine.h"
#include "calibrate/price.h"
#include "calibrate/read_runs.h"
#include "calibrate/score.h"
#include "cli/command/command.h"
#include "cli/help/offered_values.h"
#include "cli/options/option_values.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "cli/output/progress_bar.h"
#include "cli/output/terminal.h"
#include "report/table.h"
#include "scenario/command_line.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kAuto = "auto";
constexpr std::size_t kListedReasons = 8;
constexpr std::size_t kChoiceSteps = 1000;

std::string SignedPercent(double fraction) { return WithSign(FormatPercent(fraction)); }

// A figure that needs rows: null without them.
Json IfAny(std::size_t rows, double value) { return rows == 0 ? Json() : Json(value); }

// What a table shows of a figure that needs rows.
std::string PercentIfAny(std::size_t rows, double value) {
  return rows == 0 ? "-" : FormatPercent(value);
}

OfferedValues OfferedConstants() {
  OfferedValues offered;
  offered.values.push_back({std::string(kAuto)});
  for (const std::string_view name : MachineFieldNames()) {
    offered.values.push_back({std::string(name)});
  }
  return offered;
}

std::vector<std::string> PartsOf(const std::string& group) {
  std::vector<std::string> parts;
  constexpr std::string_view kBetween = ", ";
  for (std::size_t begin = 0; begin < group.size();) {
    const std::size_t end = std::min(group.find(kBetween, begin), group.size());
    parts.push_back(group.substr(begin, end - begin));
    begin = end + kBetween.size();
  }
  return parts;
}

// Returns the groups without the values that all of them have.
std::vector<std::string> ShortGroups(const std::vector<GroupScore>& groups) {
  std::map<std::string, std::size_t> count;
  for (const GroupScore& group : groups) {
    for (const std::string& part : PartsOf(group.group)) ++count[part];
  }
  std::vector<std::string> texts;
  for (const GroupScore& group : groups) {
    std::vector<std::string> parts = PartsOf(group.group);
    if (groups.size() > 1) {
      std::erase_if(parts, [&](const std::string& part) { return count[part] == groups.size(); });
    }
    texts.push_back(fmt::format("{}", fmt::join(parts, ", ")));
  }
  return texts;
}

class CalibrateCommand : public Command {
 public:
  std::string Name() const override { return "calibrate"; }
  std::string Summary() const override {
    return "Compare predictions with measured runs, and fit constants of the machine to them";
  }
  void Define(CLI::App& app) override {
    OfferedPaths paths = OfferedPaths::kFiles;
    Offer(app.add_option("RUNS.csv", path_,
                         "A table of runs: columns are options of 'penstock simulate', and "
                         "step_time, iteration_ms, tokens_per_second_per_device or peak_bytes as "
                         "measured; bench/run tables turns tables of other systems into such")
              ->required(),
          [paths] {
            OfferedValues offered;
            offered.paths = paths;
            return offered;
          });
    Offer(app.add_option("--fit", fit_,
                         fmt::format("Fit these constants by least errors, or auto for all that "
                                     "the rows determine: {}",
                                     fmt::join(MachineFieldNames(), ", ")))
              ->delimiter(',')
              ->allow_extra_args(false)
              ->type_name("NAMES"),
          OfferedConstants);
    app.add_option("--fit-per", fit_per_,
                   "Columns by which each constant has values of its own (default: device; for "
                   "flops_efficiency also precision and release)")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("COLUMNS");
    AddText(app, "-o,--output", output_, "Write the fitted constants, for --machine")
        ->type_name("FILE.yaml");
    app.add_option("--group-by", group_by_,
                   "Columns of rows that compete (default: job, if the table has it, or all that a "
                   "user does not choose: model, devices, precision, sequence, global batch, "
                   "release)")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("COLUMNS");
    app.add_flag("--rows", rows_, "Print every row and every refused row");
    app.add_flag("--json", json_, "Print the scores as JSON");
    options_.Define(app, FieldGroup::kModel);
    app.footer(
        "Options of a model hold for all rows that do not say otherwise: penstock calibrate "
        "runs.csv --device a100");
  }

  Result<int> Run() override {
    PENSTOCK_TRY_STATUS(CheckOptions());
    PENSTOCK_TRY(MeasuredRuns runs, ReadMeasuredRuns(path_));
    all_rows_ = runs.rows();
    for (MeasuredRun& run : runs.runs) FillOpenFields(options_.scenario, run);
    group_columns_ = GroupColumns(runs);
    PricedRuns priced = PriceRuns(std::move(runs), group_columns_);
    if (priced.runs.empty()) {
      const RefusedRow& first = priced.refused.front();
      return InvalidArgument("{}: none of the {} rows can be priced; the first: line {}: {}", path_,
                             all_rows_, first.line, first.reason);
    }
    std::optional<Fit> fit;
    if (!fit_.empty()) {
      auto fitted = FitTo(priced);
      if (!fitted) return tl::unexpected(In(path_, std::move(fitted).error()));
      fit = *std::move(fitted);
      if (!fit->is_kept && !output_.empty()) {
        return InvalidArgument("{}: {}, and --output is not written", path_, WhyNotKept(*fit));
      }
      before_ = ScoresOf(priced.predictions).time;
      if (fit->is_kept) priced = PriceAgain(std::move(priced), *fit);
      if (!output_.empty()) PENSTOCK_TRY_STATUS(WriteMachine(*fit));
    }
    const Scores scores = ScoresOf(priced.predictions);
    if (json_) {
      PrintObject(ToJson(priced, scores, fit));
    } else {
      Print(priced, scores, fit);
    }
    return kExitOk;
  }

 private:
  Status CheckOptions() const {
    if (fit_.empty() && !output_.empty()) {
      return InvalidArgument("--output has no effect without --fit; say what to fit");
    }
    if (fit_.empty() && !fit_per_.empty()) {
      return InvalidArgument("--fit-per has no effect without --fit; say what to fit");
    }
    for (const auto& [option, columns] :
         {std::pair("--fit-per", &fit_per_), {"--group-by", &group_by_}}) {
      for (const std::string& column : *columns) {
        if (const Status known = CheckColumn(column); !known) {
          return InvalidArgument("{} {}", option, known.error().line());
        }
      }
    }
    return {};
  }

  std::vector<std::string_view> GroupColumns(const MeasuredRuns& runs) const {
    if (!group_by_.empty()) return {group_by_.begin(), group_by_.end()};
    const bool has_jobs = std::ranges::any_of(
        runs.runs, [](const MeasuredRun& run) { return run.tags.contains("job"); });
    return has_jobs ? std::vector<std::string_view>{"job"} : FixedColumns();
  }

  Result<Fit> FitTo(const PricedRuns& priced) const {
    const std::vector<std::string_view> per(fit_per_.begin(), fit_per_.end());
    if (fit_.size() == 1 && fit_.front() == kAuto) {
      ProgressBar bar(kChoiceSteps);
      return FitDeterminedConstants(priced, per, [&](double part) {
        bar.Show(static_cast<std::size_t>(part * static_cast<double>(kChoiceSteps)));
      });
    }
    PENSTOCK_TRY(const std::vector<FitConstant> constants, FindConstants(fit_, per));
    return FitConstants(priced, constants);
  }

  PricedRuns PriceAgain(PricedRuns priced, const Fit& fit) const {
    return PriceRuns({.runs = fit.runs, .refused = std::move(priced.refused)}, group_columns_);
  }

  Status WriteMachine(const Fit& fit) const {
    return WriteFileAtomically(output_, ToYaml(FittedMachine(fit, path_)));
  }

  Json ToJson(const PricedRuns& priced, const Scores& scores, const std::optional<Fit>& fit) const {
    Json refused = Json::array(), groups = Json::array();
    for (const RefusedRow& row : priced.refused) {
      refused.push_back({{"row", row.row}, {"reason", row.reason}});
    }
    for (const GroupScore& group : scores.groups) {
      groups.push_back({{"group", group.group},
                        {"rows", group.rows},
                        {"best_found", group.best_found},
                        {"regret", group.regret}});
    }
    const TimeScore& time = scores.time;
    const MemoryScore& memory = scores.memory;
    Json json = {{"rows", all_rows_},
                 {"priced", priced.runs.size()},
                 {"refused", std::move(refused)},
                 {"time",
                  {{"mape", IfAny(time.rows, time.mape)},
                   {"bias", IfAny(time.rows, time.bias)},
                   {"pairs_in_order", IfAny(time.pairs, time.pairs_in_order)}}},
                 {"groups", std::move(groups)},
                 {"memory",
                  {{"rows", memory.rows},
                   {"within_5", IfAny(memory.rows, memory.within_5)},
                   {"within_10", IfAny(memory.rows, memory.within_10)}}},
                 {"fitted", fit ? FitJson(*fit) : Json()}};
    if (fit) {
      json["fitted"]["pairs_in_order_before"] = IfAny(before_.pairs, before_.pairs_in_order);
    }
    if (rows_) json["predictions"] = PredictionsJson(priced);
    return json;
  }

  static Json FitJson(const Fit& fit) {
    Json constants = Json::array();
    for (const ConstantValue& value : fit.values) {
      Json of = Json::object();
      for (const auto& [column, text] : value.of) of[column] = text;
      constants.push_back({{"name", value.field->name},
                           {"for", std::move(of)},
                           {"value", value.value},
                           {"error", value.at_bound ? Json() : Json(value.error)},
                           {"rows", value.rows}});
    }
    return {{"constants", std::move(constants)},
            {"kept", fit.is_kept},
            {"rows", fit.rows},
            {"mape_before", fit.mape_before},
            {"mape", fit.mape},
            {"cross_validated_mape", fit.cross_validated ? Json(*fit.cross_validated) : Json()}};
  }

  static Json PredictionsJson(const PricedRuns& priced) {
    Json rows = Json::array();
    for (std::size_t i = 0; i < priced.predictions.size(); ++i) {
      const Prediction& each = priced.predictions[i];
      rows.push_back({{"row", each.row},
                      {"group", each.group},
                      {"step_time", each.step_time},
                      {"measured_step_time",
                       each.measured_step_time ? Json(*each.measured_step_time) : Json()},
                      {"peak_bytes", each.peak_bytes},
                      {"measured_peak_bytes",
                       each.measured_peak_bytes ? Json(*each.measured_peak_bytes) : Json()},
                      {"command", CommandLineOf(priced.runs[i].scenario)}});
    }
    return rows;
  }

  void Print(const PricedRuns& priced, const Scores& scores, const std::optional<Fit>& fit) const {
    fmt::print("{} rows in {}: {} priced, {} refused\n", all_rows_, path_, priced.runs.size(),
               priced.refused.size());
    PrintRefused(priced.refused);
    if (rows_) fmt::print("\n{}", TableText(RowTable(priced)));
    if (scores.time.rows > 0) fmt::print("\n{}", TableText(TimeTable(scores.time)));
    if (scores.memory.rows > 0) fmt::print("\n{}", TableText(MemoryTable(scores.memory)));
    if (!scores.groups.empty()) fmt::print("\n{}", TableText(GroupTable(scores)));
    if (!fit) return;
    if (!fit->is_kept) {
      fmt::print("\n{}.\n", WhyNotKept(*fit));
      return;
    }
    fmt::print("\n{}", TableText(FitTable(*fit)));
    PrintGain(*fit, scores.time);
    if (!output_.empty()) fmt::print("Wrote {}, for --machine.\n", output_);
  }

  static std::string WhyNotKept(const Fit& fit) {
    return fmt::format(
        "No fit is kept: the best one is {} off on rows that it leaves out, and the constants in "
        "effect are {} off",
        fit.cross_validated ? FormatPercent(*fit.cross_validated) : "-",
        FormatPercent(fit.mape_before));
  }

  void PrintGain(const Fit& fit, const TimeScore& after) const {
    fmt::print("\nThe fit to {} rows changes the mean error from {} to {}; {}.\n", fit.rows,
               FormatPercent(fit.mape_before), FormatPercent(fit.mape),
               fit.cross_validated ? fmt::format("of rows that it leaves out it is {}",
                                                 FormatPercent(*fit.cross_validated))
                                   : "there are too few rows to leave some out");
    if (fit.cross_validated && *fit.cross_validated >= fit.mape_before) {
      fmt::print("The constants that the rows had predict rows that are left out as well.\n");
    }
    if (after.pairs > 0 && after.pairs_in_order < before_.pairs_in_order) {
      fmt::print("It ranks worse than without a fit: {} of the pairs are in order, {} before.\n",
                 FormatPercent(after.pairs_in_order), FormatPercent(before_.pairs_in_order));
    }
  }

  // Rows that are refused for the same reason share a line, unless all rows are asked for.
  void PrintRefused(const std::vector<RefusedRow>& refused) const {
    if (rows_) {
      for (const RefusedRow& row : refused) {
        fmt::print("  {}: line {}: {}\n", path_, row.line, row.reason);
      }
      return;
    }
    std::vector<std::pair<const RefusedRow*, std::size_t>> reasons;
    std::map<std::string_view, std::size_t> index;
    for (const RefusedRow& row : refused) {
      const auto [place, added] = index.emplace(row.reason, reasons.size());
      if (added) reasons.emplace_back(&row, 0);
      ++reasons[place->second].second;
    }
    for (std::size_t i = 0; i < std::min(kListedReasons, reasons.size()); ++i) {
      const auto& [row, count] = reasons[i];
      fmt::print("  line {}{}: {}\n", row->line,
                 count > 1 ? fmt::format(" and {} more", count - 1) : "", row->reason);
    }
    if (reasons.size() > kListedReasons) {
      fmt::print("  and {} other reasons; --rows prints all\n", reasons.size() - kListedReasons);
    }
  }

  static Table RowTable(const PricedRuns& priced) {
    Table table;
    table.title = "Rows";
    table.columns = {"row",         "step time",       "measured",       "error",
                     "peak memory", "measured memory", "error of memory"};
    for (const Prediction& each : priced.predictions) {
      std::vector<std::string> cells = {fmt::format("{}", each.row),
                                        FormatSeconds(each.step_time),
                                        "-",
                                        "-",
                                        FormatBytes(static_cast<std::int64_t>(each.peak_bytes)),
                                        "-",
                                        "-"};
      if (each.measured_step_time) {
        cells[2] = FormatSeconds(*each.measured_step_time);
        cells[3] = SignedPercent(each.step_time / *each.measured_step_time - 1);
      }
      if (each.measured_peak_bytes) {
        cells[5] = FormatBytes(static_cast<std::int64_t>(*each.measured_peak_bytes));
        cells[6] = SignedPercent(each.peak_bytes / *each.measured_peak_bytes - 1);
      }
      table.rows.push_back(std::move(cells));
    }
    return table;
  }

  static Table TimeTable(const TimeScore& score) {
    Table table;
    table.title = "Step time";
    table.columns = {"rows", "mean error", "median error", "bias", "pairs in order"};
    table.rows.push_back({fmt::format("{}", score.rows), FormatPercent(score.mape),
                          FormatPercent(score.median_error), SignedPercent(score.bias),
                          PercentIfAny(score.pairs, score.pairs_in_order)});
    return table;
  }

  static Table MemoryTable(const MemoryScore& score) {
    Table table;
    table.title = "Peak memory";
    table.columns = {"rows", "mean error", "bias", "within 5%", "within 10%"};
    table.rows.push_back({fmt::format("{}", score.rows), FormatPercent(score.mape),
                          SignedPercent(score.bias), FormatPercent(score.within_5),
                          FormatPercent(score.within_10)});
    return table;
  }

  Table GroupTable(const Scores& scores) const {
    constexpr std::size_t kListedGroups = 12;
    Table table;
    std::size_t found = 0;
    double regret = 0;
    for (const GroupScore& group : scores.groups) {
      found += group.best_found ? 1 : 0;
      regret += group.regret / static_cast<double>(scores.groups.size());
    }
    table.title = fmt::format(
        "Choosing the fastest prediction in each group: best row found in {} of {}, mean regret {}",
        found, scores.groups.size(), FormatPercent(regret));
    table.columns = {"group", "rows", "mean error", "best found", "regret"};
    const std::vector<std::string> names = ShortGroups(scores.groups);
    for (std::size_t i = 0; i < scores.groups.size(); ++i) {
      const GroupScore& group = scores.groups[i];
      if (!rows_ && table.rows.size() == kListedGroups) {
        table.rows.push_back(
            {fmt::format("{} more; --rows prints all", scores.groups.size() - kListedGroups), "",
             "", "", ""});
        break;
      }
      table.rows.push_back({names[i], fmt::format("{}", group.rows), FormatPercent(group.mape),
                            group.best_found ? "yes" : "no", FormatPercent(group.regret)});
    }
    return table;
  }

  static Table FitTable(const Fit& fit) {
    Table table;
    table.title = "Fitted constants";
    table.columns = {"constant", "for", "value", "standard error", "rows"};
    for (const ConstantValue& value : fit.values) {
      std::string of;
      for (const auto& [column, text] : value.of) {
        of += fmt::format("{}{} {}", of.empty() ? "" : ", ", column, text);
      }
      table.rows.push_back({std::string(value.field->name), of.empty() ? "all rows" : of,
                            ConstantText(value, value.value),
                            value.at_bound ? "at its bound" : ConstantText(value, value.error),
                            fmt::format("{}", value.rows)});
    }
    return table;
  }

  std::string path_, output_;
  std::size_t all_rows_ = 0;
  std::vector<std::string> fit_, fit_per_, group_by_;
  std::vector<std::string_view> group_columns_;
  bool rows_ = false, json_ = false;
  TimeScore before_ = {};  // without the fit
  ScenarioOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeCalibrateCommand() { return std::make_unique<CalibrateCommand>(); }

}  // namespace penstock
