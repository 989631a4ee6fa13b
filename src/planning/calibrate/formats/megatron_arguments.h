// Arguments of Megatron-LM's functional tests.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "calibrate/csv_table.h"

namespace penstock {

// The arguments of one run: cells of its row, and what is known of its test (megatron_tests.txt).
class MegatronArguments {
 public:
  explicit MegatronArguments(const CsvRow& row);

  const CsvRow& row() const { return row_; }
  std::string_view Text(std::string_view name) const;
  bool Has(std::string_view name) const { return !Text(name).empty(); }
  bool IsTrue(std::string_view name) const { return Text(name) == "true"; }
  // Returns a whole number. Errors: kInvalidArgument about the argument.
  Result<int> Count(std::string_view name) const;
  Result<int> CountOr(std::string_view name, int otherwise) const;
  // Whether the run's values are older than November 2025.
  bool is_old() const { return is_old_; }

 private:
  const CsvRow& row_;
  std::map<std::string_view, std::string_view> of_test_;
  bool is_old_ = false;
};

}  // namespace penstock
