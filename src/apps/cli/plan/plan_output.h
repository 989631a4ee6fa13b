// What `penstock plan` prints and writes.
#pragma once

#include <string>

#include "cli/options/output_format.h"

namespace penstock {

struct PlanOutput {
  OutputFormat format = OutputFormat::kTable;
  std::string csv = {};      // the file for the best schedule; empty: none
  std::string configs = {};  // the folder for configurations that run it; empty: none
  std::string page = {};     // the file for the page; empty: none
  std::string command = {};  // what asked, for the page
};

}  // namespace penstock
