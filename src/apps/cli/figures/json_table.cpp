#include "cli/figures/json_table.h"

#include <map>
#include <string>

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::string CellOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Calls `add` with the name and value of each column; columns of nested objects come last.
template <class Add>
void ForEachColumn(const Json& object, const Add& add, const std::string& prefix = "") {
  for (const auto& [key, value] : object.items()) {
    if (!value.is_structured()) add(prefix + key, value);
  }
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) ForEachColumn(value, add, prefix + key + "_");
  }
}

}  // namespace

Table TableOf(const Json& objects) {
  Table table;
  std::map<std::string, std::size_t> column_of;
  for (const Json& object : objects) {
    ForEachColumn(object, [&](const std::string& name, const Json& /*value*/) {
      if (column_of.try_emplace(name, table.columns.size()).second) table.columns.push_back(name);
    });
  }
  for (const Json& object : objects) {
    std::vector<std::string>& row = table.rows.emplace_back(table.columns.size(), "null");
    ForEachColumn(object, [&](const std::string& name, const Json& value) {
      row[column_of.at(name)] = CellOf(value);
    });
  }
  return table;
}

}  // namespace penstock
