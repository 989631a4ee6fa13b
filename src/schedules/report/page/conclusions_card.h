// The parts of a page that say what its figures mean.
#pragma once

#include <span>
#include <string>

#include "report/report.h"

namespace penstock {

// The conclusions of these runs, and what to try next; nothing if there are none.
std::string ConclusionsCard(const ReportInput& input, std::span<const ReportRun> runs);

// A command with a button that copies it.
std::string CommandHtml(std::string_view command, std::string_view title);

// A passage as a card; commands can be copied.
std::string PassageCard(const Passage& passage);

// What the page's words mean, folded, with links to the pages of the documentation if the program
// was built with the address of its site (PENSTOCK_SITE).
std::string WordsCard(const ReportInput& input);

}  // namespace penstock
