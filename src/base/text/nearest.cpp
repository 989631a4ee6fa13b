#include "base/text/nearest.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <limits>

namespace penstock {
namespace {

// Nobody mistypes a longer name, and the time grows with the square of the length.
constexpr std::size_t kLongestName = 64;
// Shorter prefixes and words occur in too many names to identify one.
constexpr std::size_t kShortestPart = 2;

bool IsSeparator(char c) { return c == '-' || c == '_' || c == '.'; }

// Returns the words of a name in lower case, each preceded by one '-', so that "-limit" is found in
// "-memory-limit".
std::string SpacedWords(std::string_view name) {
  std::string words = "-";
  for (const char c : name) {
    if (!IsSeparator(c)) {
      words += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (words.back() != '-') {
      words += '-';
    }
  }
  return words;
}

std::string WithoutSeparators(std::string words) {
  std::erase(words, '-');
  return words;
}

// Returns the number of insertions, deletions, replacements and swaps of neighbors that turn one
// into the other.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last, last, row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last = std::move(last);
    last = std::move(row);
    row.assign(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

bool HasPart(const std::string& name, const std::string& part) {
  if (part.size() <= kShortestPart) return false;  // including the leading '-'
  const std::size_t found = name.find(part);
  if (found == std::string::npos) return false;
  const std::size_t end = found + part.size();
  return found == 0 || end == name.size() || name[end] == '-';
}

constexpr std::size_t kNotSimilar = std::numeric_limits<std::size_t>::max();

// Returns a number that is smaller the more similar the two are.
std::size_t Difference(const std::string& name, const std::string& candidate) {
  const std::string a = WithoutSeparators(name);
  const std::string b = WithoutSeparators(candidate);
  const std::size_t longer = std::max(a.size(), b.size());
  const std::size_t distance = EditDistance(a, b);
  if (distance <= longer / 3) return distance;
  if (HasPart(candidate, name) || HasPart(name, candidate)) return kLongestName + distance;
  return kNotSimilar;
}

}  // namespace

std::string_view Nearest(std::string_view name, const std::vector<std::string_view>& candidates) {
  std::string_view nearest;
  if (name.size() > kLongestName) return nearest;
  const std::string words = SpacedWords(name);
  std::size_t least = kNotSimilar;
  for (const std::string_view candidate : candidates) {
    const std::size_t difference = Difference(words, SpacedWords(candidate));
    if (difference >= least) continue;
    least = difference;
    nearest = candidate;
  }
  return nearest;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string_view>& candidates,
                       std::string otherwise) {
  const std::string_view nearest = Nearest(name, candidates);
  if (nearest.empty()) return otherwise;
  return "did you mean '" + std::string(nearest) + "'?";
}

std::string Suggestion(std::string_view name, const std::vector<std::string_view>& candidates) {
  const std::string question = DidYouMean(name, candidates);
  return question.empty() ? question : "; " + question;
}

}  // namespace penstock
