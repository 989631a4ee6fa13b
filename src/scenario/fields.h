// The fields of a Scenario, each declared once. The options of the command line with their help and
// completion, the keys of configurations, a schedule's own options, the fields of sweeps, the
// refusals of fields without an effect, and the keywords of Python derive from this table.
//
// Adding a field takes one row of scenario_fields.def, or of cost_model/request/model_fields.def if
// it describes a model, and its use.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/text/yaml_map.h"
#include "scenario/scenario.h"
#include "schedule/catalog.h"

namespace penstock {

// The last three have maps or lists of maps as values, which only a configuration can give.
using ScenarioMember =
    std::variant<std::optional<int> Scenario::*, std::optional<double> Scenario::*,
                 std::optional<bool> Scenario::*, std::optional<TimeValue> Scenario::*,
                 std::optional<std::string> Scenario::*, std::vector<std::string> Scenario::*,
                 std::optional<CostList> Scenario::*, std::optional<Topology> Scenario::*,
                 std::optional<CollectivesConfig> Scenario::*>;

// A heading of --help.
enum class FieldGroup { kShape, kFiles, kCosts, kModel, kPasses, kRuns };

// Which schedules read a field, by where they come from. A sum of these.
enum ReadBy : std::uint8_t {
  kAlgorithm = 1,
  kCsv = 2,
  kDump = 4,   // a folder of Primus's
  kTrace = 8,  // a recorded run
  kFile = kCsv | kDump | kTrace,
  kAny = kAlgorithm | kFile,
};

// Who reads a field where a command only orders actions. A sum of these.
enum OrderedBy : std::uint8_t {
  kNobody = 0,
  kSearches = 1,  // algorithms
  kPasses = 2,    // if there are any
  kEverybody = 4,
};

// How a field goes with a model. By its group: only with one if the group is kModel, else either
// way.
enum class WithModel { kByGroup, kEither, kNotWith, kOnlyWith };

// Where a fit of measured runs searches a constant of the machine (calibrate/fit).
struct FitRange {
  double least = 0, most = 1;
  double usual = 0;  // the value of a scenario that does not set it
};

struct ScenarioField {
  std::string_view name;
  ScenarioMember member;
  FieldGroup group = FieldGroup::kShape;
  std::string_view value_name;  // in --help: "LIMIT"
  std::string help;             // one sentence
  std::string_view short_name = {};
  std::string_view former_name = {};  // works for one release, with a note
  double least = std::numeric_limits<double>::lowest();
  double most = std::numeric_limits<double>::max();
  std::vector<std::string_view> choices = {};  // what completion offers
  bool takes_path = false;                     // whether a path may stand for a choice
  bool is_joined = false;                      // whether a file may give the value as a list
  std::string_view python = {};                // its type in Python, if that is not the member's
  int read_by = kAny;
  int ordered_by = kEverybody;
  WithModel with_model = WithModel::kByGroup;
  // Whether the algorithm reads the value; null: every algorithm does.
  bool (*supported)(const Algorithm&, const Scenario&) = nullptr;
  bool in_candidates = true;  // whether a single schedule may have its own, and a sweep vary it
  std::optional<FitRange> fit = {};  // if it is a constant of the machine, a number or a time
};

// In the order of --help.
std::span<const ScenarioField> ScenarioFields();

// Returns the field of a name, null if there is none.
const ScenarioField* FindField(std::string_view name);
// Returns the current name of a field ("data_parallel" for "data"), and adds a note for the user if
// `name` is a former one. Returns any other name unchanged.
std::string_view CurrentFieldName(std::string_view name);
// Returns the key that a configuration has for the field: its name, or its former name.
std::string KeyOf(const ScenarioField& field, const YamlMap& config);

bool IsGiven(const ScenarioField& field, const Scenario& scenario);
void Reset(const ScenarioField& field, Scenario& scenario);
// Copies a field's value where `to` has none.
void FillFrom(const ScenarioField& field, const Scenario& from, Scenario& to);
bool IsList(const ScenarioField& field);
bool IsNested(const ScenarioField& field);
// Whether values may contain commas, so that commas cannot separate several.
bool MayContainCommas(const ScenarioField& field);

// Sets a value, or appends one to a list. Requires !IsNested(field). Errors: kInvalidArgument about
// the field if the text is of another kind. Ranges are checked by CheckRanges, because a value may
// be replaced before it is used.
Status SetText(const ScenarioField& field, const std::string& text, Scenario& scenario);
// Sets a field to the value that a configuration has for it, if any.
Status SetFromYaml(const ScenarioField& field, const YamlMap& config, Scenario& scenario);
// Returns the value as SetText reads it. Requires: IsGiven, and !IsNested(field); a list has
// commas.
std::string TextOf(const ScenarioField& field, const Scenario& scenario);
// The field as lines of YAML that SetFromYaml reads. Requires IsGiven.
std::string ToYaml(const ScenarioField& field, const Scenario& scenario);

// Refuses numbers outside the range of their field.
Status CheckRanges(const Scenario& scenario);

// The names of the fields that are set.
std::vector<std::string_view> GivenFields(const Scenario& scenario);

}  // namespace penstock
