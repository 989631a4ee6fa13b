// The options of a command that make up its scenario. All commands share them:
//
//   penstock COMMAND SCHEDULE... [OPTION...]
//
// A SCHEDULE is a name or a file (scenario/candidates.h); --schedule and --csv are equivalent
// options. Each field of the scenario (scenario/fields.h) is an option. A configuration among the
// words sets the fields that the command line leaves open.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenario/fields.h"
#include "scenario/price/read_file.h"
#include "scenario/price/simulated.h"
#include "scenario/scenario.h"

namespace penstock {

// Returns the option of a field: "--memory-limit". A field that only files give has its name.
std::string OptionOf(std::string_view field);

class ScenarioOptions {
 public:
  Scenario scenario;
  Purpose purpose;
  std::string config;  // the YAML file among the words; empty if there is none

  // The positional SCHEDULE, --schedule and --csv, and what a file does not say.
  void DefineSource(CLI::App& app);
  // The fields of a group.
  void Define(CLI::App& app, FieldGroup group);
  // The sources, shape, costs and passes: what commands take that draw or compare schedules.
  void DefineSchedules(CLI::App& app);

  // Reads the words and the configuration among them, and refuses fields without an effect. Returns
  // the schedules if the configuration is one of Primus's.
  Result<std::optional<PrimusSchedules>> ReadSources();
  // Builds every schedule, at least one; `primus` is what ReadSources returned.
  Result<PrimusSchedules> Build(std::optional<PrimusSchedules> primus) const;
  // Reads the sources and builds the schedules.
  Result<PrimusSchedules> Choose();
  // Simulates them with their timelines.
  Result<std::vector<Simulated>> Simulate();

  // Returns an error with the options and keys that the user gave. `otherwise` is the field that it
  // is about if it names none.
  Error AsGiven(Error error, std::string_view otherwise = "schedule") const;

 private:
  // What the user wrote.
  std::vector<std::string> words_, schedules_, csv_;
};

}  // namespace penstock
