// The names of runs, which commands take instead of their folders.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// The runs in runs/.
std::vector<std::string> RunNames();
// Returns the folder of a run: `run` if it is a folder, otherwise runs/NAME for a name, which need
// not exist.
std::string FolderOfRun(const std::string& run);
// Returns "; did you mean 'english'?" for a name that is similar to a run's, or nothing.
std::string SimilarRun(const std::string& run);

// Returns the path that a user wrote, or the folder of the run that it names. Errors: kNotFound for
// a word that is neither a file nor a folder nor a run.
Result<std::string> PathOrRun(const std::string& text);

}  // namespace penstock
