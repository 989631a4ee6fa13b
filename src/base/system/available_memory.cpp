#include "base/system/available_memory.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace penstock {
namespace {

constexpr std::int64_t kKib = 1024;

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Returns the number at the front, after blanks; nothing for "max".
std::optional<std::int64_t> NumberAt(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

// Returns the number on the line that begins with `name`.
std::optional<std::int64_t> Entry(const std::string& path, std::string_view name) {
  const auto text = ReadFile(path);
  if (!text) return std::nullopt;
  for (const std::string_view line : Lines(*text)) {
    if (line.starts_with(name)) return NumberAt(line.substr(name.size()));
  }
  return std::nullopt;
}

// The names of the files that describe the memory of a control group, by version of the interface.
struct GroupFiles {
  std::string_view folder, limit, usage, cache;
};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current",
                                  "inactive_file "};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                                  "/memory.usage_in_bytes", "total_inactive_file "};

std::optional<std::int64_t> LeftInGroup(const std::string& folder, const GroupFiles& files) {
  const auto limit = Entry(folder + std::string(files.limit), "");
  const auto usage = Entry(folder + std::string(files.usage), "");
  if (!limit || !usage) return std::nullopt;
  const std::int64_t cache = Entry(folder + "/memory.stat", files.cache).value_or(0);
  return std::max<std::int64_t>(0, *limit - *usage + cache);
}

// Adds the process's group and its ancestors, which limit it too.
void AddGroups(const std::string& root, std::string_view path, const GroupFiles& files,
               std::vector<AvailableMemory>& found) {
  while (true) {
    if (path.ends_with('/')) path.remove_suffix(1);
    const std::string group(path);
    if (const auto left = LeftInGroup(fmt::format("{}{}{}", root, files.folder, group), files)) {
      found.push_back({*left, "the control group " + (group.empty() ? "/" : group)});
    }
    if (path.empty()) return;
    path = path.substr(0, path.rfind('/'));
  }
}

}  // namespace

std::optional<AvailableMemory> ReadAvailableMemory(const std::string& root) {
  std::vector<AvailableMemory> found;
  if (const auto kib = Entry(root + "/proc/meminfo", "MemAvailable:")) {
    found.push_back({*kib * kKib, "this machine"});
  }
  const auto groups = ReadFile(root + "/proc/self/cgroup");
  for (const std::string_view line : Lines(groups ? std::string_view(*groups) : "")) {
    // "0::/a/b" in version 2, "4:memory:/a/b" in version 1.
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) AddGroups(root, line.substr(second + 1), kVersion2, found);
    if (controllers == "memory") AddGroups(root, line.substr(second + 1), kVersion1, found);
  }
  const auto least = std::min_element(
      found.begin(), found.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  if (least == found.end()) return std::nullopt;
  return *least;
}

}  // namespace penstock
