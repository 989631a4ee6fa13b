// 'penstock train' among the words of a launcher's command: mpirun -n 4 penstock train run.yaml.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace penstock {

// Returns the command with '--resume auto' after each 'penstock train'. Returns it unchanged if it
// already says what to resume from.
std::vector<std::string> WithResume(const std::vector<std::string>& command);

// Returns the folder of the run, from the configuration and the words after 'penstock train'.
// Nothing if there is no 'penstock train', or its configuration cannot be read.
std::optional<std::string> RunOf(const std::vector<std::string>& command);

}  // namespace penstock
