// Fields of a configuration, each declared once: its key, where its value is stored, what it may
// be, what depends on it, and one line of help. Reading, printing, help, spelling suggestions and
// what a stored result was made for all derive from the declaration.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace penstock {

using FieldValue = std::variant<std::string*, bool*, int*, std::int64_t*, std::uint64_t*, double*,
                                std::vector<std::int64_t>*>;

// What another value of a field changes; each includes those before it.
enum class Changes : std::uint8_t {
  kFiles,     // where a run writes and what it logs
  kRun,       // what a run computes
  kPrograms,  // the graphs of a stage: one compiled with another value does not serve
  kModel,     // what the weights mean: a checkpoint of another value is of another model
};

struct FieldRange {
  double least = 0;  // of numbers
  double most = std::numeric_limits<double>::max();
  bool automatic = false;         // "auto" is 0
  std::string_view choices = {};  // of text, with spaces between them; empty: any
};
inline constexpr FieldRange kFromZero = {};  // of text: any
inline constexpr FieldRange kFromOne = {.least = 1};
inline constexpr FieldRange kUpToOne = {.most = 1};
inline constexpr FieldRange kAutomatic = {.automatic = true};
constexpr FieldRange OneOf(std::string_view choices) { return {.choices = choices}; }

struct Field {
  std::string key;
  FieldValue value;
  Changes changes;
  std::string_view help;  // one line; may be empty
  FieldRange range = {};
  // What other frameworks call it, in lower case with underscores; spaces between the names.
  std::string_view known_as = {};
};

// Sets the field's value. Errors: kInvalidArgument where the text is of another kind or out of
// range; they begin with the key.
Status SetField(const Field& field, std::string_view text);
// Sets a list, one item after the other. Requires IsList(field).
Status SetItems(const Field& field, std::span<const std::string_view> items);

// The value as SetField reads it.
std::string FieldText(const Field& field);
// Returns the value as YAML: text is quoted.
std::string FieldYaml(const Field& field);

// The words of `text`.
std::vector<std::string_view> Words(std::string_view text);

bool IsText(const Field& field);
bool IsList(const Field& field);

}  // namespace penstock
