// The status of a run as a page that reloads itself.
#pragma once

#include <string>

#include "base/result.h"
#include "monitor/run_status.h"

namespace penstock {

// Returns a self-contained page without scripts. While the run is not finished, the browser reloads
// it every `reload_seconds`, at least once per second. `written` is the time of the figures.
std::string StatusPage(const RunStatus& status, double reload_seconds, const std::string& written);

// Writes the page atomically, with the present local time. Errors: kInvalidArgument if the folder
// of `path` is missing or not writable, kUnavailable if the page cannot be written.
Status WriteStatusPage(const RunStatus& status, double reload_seconds, const std::string& path);

}  // namespace penstock
