// The page of a search: a chart of time against memory, and one plan at a time with its timeline.
//
// Ownership: as ReportInput.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "report/report.h"

namespace penstock {

// What a search found.
struct FrontPlan {
  std::string name;
  std::string note = {};  // why it loses; empty in the front
  bool in_front = true;   // whether no other plan beats it in both time and memory
  double time = 0, memory = 0;
  std::vector<KeyFigure> figures = {};
  std::vector<std::pair<std::string, std::string>> values = {};  // all figures, unrounded, by key
  std::string command = {};                                      // simulates the plan
  std::string csv_name = {}, csv = {};  // a file that the command reads; may be empty
  std::optional<std::size_t> run = {};  // its timeline, as an index of the report's runs
  std::string missing = {};             // why it has none
};

// "No schedule within this memory takes less time."
struct FrontBound {
  double memory = 0, time = 0;
};

struct FrontPage {
  // Title, subtitle, units, runs and passages. Its tables have a row for each plan, in their order.
  ReportInput report;
  std::string time_name = "time", memory_name = "memory";
  std::vector<FrontPlan> plans;         // at least one; they are numbered from 1
  std::size_t first = 0;                // the plan that the page shows at first
  std::vector<FrontBound> bounds = {};  // memory ascending
  std::optional<double> memory_limit = {};
};

// Returns a self-contained page. Errors: as RenderHtml; a page may have no runs.
Result<std::string> RenderFront(const FrontPage& page);
// Writes it to a file, atomically.
Status WriteFront(const FrontPage& page, const std::string& path);

// "Plan 3"
std::string NumberedPlan(std::size_t index);

}  // namespace penstock
