// penstock schedules: the algorithms there are, what they take and what they cost.
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/schedule_options.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::string ChunksText(const Knobs& knobs) {
  if (knobs.min_chunks == knobs.max_chunks) return fmt::format("{}", knobs.min_chunks);
  return fmt::format("{}+ (default {})", knobs.min_chunks, knobs.default_chunks);
}

std::vector<std::string> OptionNames(const Knobs& knobs) {
  std::vector<std::string> names;
  if (knobs.min_chunks != knobs.max_chunks) names.emplace_back("--chunks");
  if (knobs.group) names.emplace_back("--group");
  if (knobs.cuts) names.emplace_back("--cuts");
  if (knobs.waves) names.emplace_back("--waves");
  if (knobs.steps) names.emplace_back("--steps");
  if (knobs.split) names.emplace_back("--split");
  if (knobs.memory_limit) names.emplace_back("--memory-limit");
  return names;
}

std::string Join(const std::vector<std::string_view>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

Json ToJson(const Algorithm& algorithm) {
  Json row;
  row["name"] = algorithm.name;
  row["aliases"] = algorithm.aliases;
  row["summary"] = algorithm.summary;
  row["constraint"] = algorithm.constraint;
  row["default_chunks"] = algorithm.knobs.default_chunks;
  row["options"] = OptionNames(algorithm.knobs);
  row["makespan"] = algorithm.makespan;
  row["memory"] = algorithm.memory;
  row["source"] = algorithm.source;
  return row;
}

// The closed forms as numbers at the sizes asked for; null where there is none, or no schedule.
Json FiguresAt(const Algorithm& algorithm, const ScheduleParams& asked) {
  Json row;
  const auto params = CheckParams(algorithm, DropUnusedKnobs(algorithm, asked));
  const ClosedForm form = params ? algorithm.closed_form(*params) : ClosedForm{};
  row["makespan"] = form.makespan ? Json(*form.makespan) : Json(nullptr);
  row["peak_memory"] = form.peak_memory ? Json(*form.peak_memory) : Json(nullptr);
  if (!params) row["refused"] = params.error().message;
  return row;
}

class SchedulesCommand : public Command {
 public:
  std::string Name() const override { return "schedules"; }
  std::string Summary() const override {
    return "List the schedule algorithms: constraints, closed forms, memory, source";
  }
  void Define(CLI::App& app) override {
    options_.DefineShape(app);
    options_.DefineCosts(app);
    options_.DefineFormat(app);
    app.footer(
        "p ranks, v chunks a rank, m microbatches; F, B times of one rank and microbatch; memory "
        "in\nactivations of one rank and microbatch. With --ranks or --microbatches the closed "
        "forms are\nshown as numbers too.");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const OutputFormat format, options_.Format());
    PENSTOCK_TRY(const ScheduleParams params, options_.Params());
    const bool at_a_size = options_.ranks || options_.microbatches;
    if (format == OutputFormat::kJson) {
      Json rows = Json::array();
      for (const Algorithm& algorithm : Catalog()) {
        Json row = ToJson(algorithm);
        if (at_a_size) row["closed_form"] = FiguresAt(algorithm, params);
        rows.push_back(std::move(row));
      }
      fmt::print("{}\n", rows.dump(2));
    } else if (format == OutputFormat::kCsv) {
      PrintCsv();
    } else {
      PrintTable(params, at_a_size);
    }
    return kExitOk;
  }

 private:
  static void PrintCsv() {
    fmt::print("name,aliases,chunks,makespan,memory,constraint,source\n");
    for (const Algorithm& algorithm : Catalog()) {
      fmt::print("{},\"{}\",{},\"{}\",\"{}\",\"{}\",\"{}\"\n", algorithm.name,
                 Join(algorithm.aliases), ChunksText(algorithm.knobs), algorithm.makespan,
                 algorithm.memory, algorithm.constraint, algorithm.source);
    }
  }

  static void PrintTable(const ScheduleParams& params, bool at_a_size) {
    for (const Algorithm& algorithm : Catalog()) {
      fmt::print("{}", algorithm.name);
      if (!algorithm.aliases.empty()) fmt::print(" ({})", Join(algorithm.aliases));
      fmt::print(": {}\n", algorithm.summary);
      fmt::print("  chunks      {}\n", ChunksText(algorithm.knobs));
      fmt::print("  takes       {}\n", algorithm.constraint.empty() ? "any ranks, any microbatches"
                                                                    : algorithm.constraint);
      fmt::print("  makespan    {}\n", algorithm.makespan);
      fmt::print("  memory      {}\n", algorithm.memory);
      if (at_a_size) {
        const Json figures = FiguresAt(algorithm, params);
        fmt::print("  at p={} m={} makespan {}, memory {}{}\n", params.ranks, params.microbatches,
                   figures["makespan"].dump(), figures["peak_memory"].dump(),
                   figures.contains("refused") ? "; " + figures["refused"].get<std::string>() : "");
      }
      fmt::print("  source      {}\n\n", algorithm.source);
    }
  }

  ScheduleOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeSchedulesCommand() { return std::make_unique<SchedulesCommand>(); }

}  // namespace penstock
