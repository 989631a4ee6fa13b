#include "cli/options/scenario_options.h"

#include <algorithm>

#include "base/text/option_name.h"
#include "cli/help/offered_values.h"
#include "cli/options/pass_text.h"
#include "scenario/candidates.h"
#include "scenario/price/passes.h"
#include "scenario/price/unused_fields.h"
#include "scenario/spelling.h"

namespace penstock {
namespace {

std::string_view HeadingOf(FieldGroup group) {
  switch (group) {
    case FieldGroup::kShape:
      return "Shape";
    case FieldGroup::kFiles:
      return "Schedules";
    case FieldGroup::kCosts:
      return "Costs";
    case FieldGroup::kModel:
      return "Costs of a model";
    case FieldGroup::kPasses:
      return "Passes";
    case FieldGroup::kRuns:
      return "Jitter and steady state";
  }
  return "";
}

void SetOrThrow(const ScenarioField& field, const std::string& option, const std::string& text,
                Scenario& scenario) {
  const Status status = SetText(field, text, scenario);
  if (status) return;
  std::string why = SpellMentions(status.error().message, OptionOf);
  why.erase(0, why.find_first_not_of(": "));
  throw CLI::ValidationError(option, why);
}

CLI::Option* AddList(CLI::App& app, const std::string& names, const ScenarioField& field,
                     std::vector<std::string>& list) {
  // Without extra arguments: in 'show --pass overlap 1f1b' the last argument is the schedule.
  CLI::Option* const option =
      app.add_option(names, list, SpellMentions(field.help, OptionOf))->allow_extra_args(false);
  if (field.group == FieldGroup::kPasses) option->delimiter(',');
  return option;
}

CLI::Option* AddField(CLI::App& app, const ScenarioField& field, Scenario& scenario) {
  const std::string option = OptionOf(field.name);
  const std::string names =
      field.short_name.empty() ? option : fmt::format("-{},{}", field.short_name, option);
  const std::string help = SpellMentions(field.help, OptionOf);
  if (std::holds_alternative<std::optional<bool> Scenario::*>(field.member)) {
    return app.add_flag_function(
        names,
        // `--split=false` counts as -1.
        [&field, &scenario, option](std::int64_t count) {
          SetOrThrow(field, option, count > 0 ? "true" : "false", scenario);
        },
        help);
  }
  if (const auto* list = std::get_if<std::vector<std::string> Scenario::*>(&field.member)) {
    return AddList(app, names, field, scenario.**list);
  }
  return app.add_option_function<std::string>(
      names,
      [&field, &scenario, option](const std::string& text) {
        SetOrThrow(field, option, text, scenario);
      },
      help);
}

// Attaches what the shell offers for the field's value.
void OfferChoices(CLI::Option* option, const ScenarioField& field) {
  if (field.name == "pass") {
    Offer(option, OfferedPasses);
  } else if (field.name == "price") {
    Offer(option, OfferedPrices);
  } else if (!field.choices.empty()) {
    Offer(option, [&field] {
      OfferedValues offered;
      for (const std::string_view choice : field.choices) {
        offered.values.push_back({std::string(choice)});
      }
      if (field.takes_path) offered.paths = OfferedPaths::kFiles;
      return offered;
    });
  }
}

}  // namespace

std::string OptionOf(std::string_view name) {
  const ScenarioField* const field = FindField(name);
  if (field != nullptr && IsNested(*field)) return std::string(name);
  return OptionName(name);
}

void ScenarioOptions::DefineSource(CLI::App& app) {
  app.option_defaults()->group(std::string(HeadingOf(FieldGroup::kFiles)));
  Offer(app.add_option(
            "SCHEDULE", words_,
            "A name ('penstock schedules' lists them), a .csv file, a Chrome trace (.json, "
            ".json.gz or a folder with one per rank) or a folder of Primus's pp_rank_N.json, "
            "with its own options after a colon if need be (interleaved:v=4:m=64); and at most "
            "one .yaml file that has these options as keys"),
        [] { return OfferedSchedules(OfferedPaths::kFiles); });
  // Without extra arguments: 'simulate -s 1f1b config.yaml' names one schedule.
  Offer(app.add_option("-s,--schedule", schedules_, "The same as SCHEDULE; commas separate several")
            ->allow_extra_args(false)
            ->type_name("NAME"),
        [] { return OfferedSchedules(OfferedPaths::kNone); });
  app.add_option("--csv", csv_, "A schedule's CSV file, whatever its ending")
      ->allow_extra_args(false)
      ->type_name("FILE");
  Define(app, FieldGroup::kFiles);
}

void ScenarioOptions::Define(CLI::App& app, FieldGroup group) {
  app.option_defaults()->group(std::string(HeadingOf(group)));
  for (const ScenarioField& field : ScenarioFields()) {
    if (field.group != group || IsNested(field)) continue;
    CLI::Option* const option = AddField(app, field, scenario);
    if (!field.value_name.empty()) option->type_name(std::string(field.value_name));
    OfferChoices(option, field);
  }
}

void ScenarioOptions::DefineSchedules(CLI::App& app) {
  DefineSource(app);
  for (const FieldGroup group :
       {FieldGroup::kShape, FieldGroup::kCosts, FieldGroup::kModel, FieldGroup::kPasses}) {
    Define(app, group);
  }
}

Error ScenarioOptions::AsGiven(Error error, std::string_view otherwise) const {
  return Spell(std::move(error), scenario, OptionOf, otherwise);
}

Result<std::optional<PrimusSchedules>> ScenarioOptions::ReadSources() {
  std::vector<std::string> all = words_;
  all.insert(all.end(), schedules_.begin(), schedules_.end());
  auto read = ReadCandidates(all);
  if (!read) return tl::unexpected(AsGiven(std::move(read).error()));
  scenario.schedules = std::move(read->candidates);
  config = std::move(read->config);
  for (const std::string& path : csv_) {
    scenario.schedules.push_back({Candidate::Kind::kFile, path});
  }
  std::optional<PrimusSchedules> primus;
  if (!config.empty()) {
    auto file = ReadScenarioFile(config, purpose, scenario);
    if (!file) return tl::unexpected(AsGiven(std::move(file).error()));
    if (*file) return file;
  }
  scenario.compares = scenario.schedules.size() > 1 || !scenario.sweep.empty();
  const Status status = RefuseUnused(scenario, purpose);
  if (!status) return tl::unexpected(AsGiven(status.error()));
  return primus;
}

Result<PrimusSchedules> ScenarioOptions::Build(std::optional<PrimusSchedules> primus) const {
  if (!primus) {
    auto built = penstock::Build(scenario, purpose);
    if (!built) return tl::unexpected(AsGiven(std::move(built).error()));
    return PrimusSchedules{std::move(*built), ""};
  }
  for (PricedSchedule& chosen : primus->schedules) {
    const Status status = ApplyPasses(scenario, chosen.schedule, chosen.costs);
    if (!status) return tl::unexpected(AsGiven(status.error()));
    if (!scenario.pass.empty()) chosen.algorithm = nullptr;
    chosen.repeat = scenario.repeat;
  }
  const Status status = RefuseUnusedPrices(scenario, purpose, primus->schedules);
  if (!status) return tl::unexpected(AsGiven(status.error()));
  return *std::move(primus);
}

Result<PrimusSchedules> ScenarioOptions::Choose() {
  PENSTOCK_TRY(std::optional<PrimusSchedules> primus, ReadSources());
  return Build(std::move(primus));
}

Result<std::vector<Simulated>> ScenarioOptions::Simulate() {
  PENSTOCK_TRY(PrimusSchedules chosen, Choose());
  return SimulateEach(std::move(chosen.schedules), true);
}

}  // namespace penstock
