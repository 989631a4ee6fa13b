// Finds the name that a mistyped one most likely stands for. Every error about an unknown name
// suggests it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// Returns the candidate most similar to `name`, the first of equals, or an empty view if none is
// similar. Two names are similar if at most a third of the characters differ (inserted, missing,
// replaced, or swapped with a neighbor), if one begins with the other, or if one consists of words
// of the other ("limit" and "memory-limit"). Ignores case and the separators '-', '_' and '.'. The
// view points into the candidate.
std::string_view Nearest(std::string_view name, const std::vector<std::string_view>& candidates);

// Returns "did you mean 'CANDIDATE'?", or `otherwise` if no candidate is similar.
std::string DidYouMean(std::string_view name, const std::vector<std::string_view>& candidates,
                       std::string otherwise = "");

// Returns "; did you mean 'CANDIDATE'?" to append to an error, or nothing.
std::string Suggestion(std::string_view name, const std::vector<std::string_view>& candidates);

}  // namespace penstock
