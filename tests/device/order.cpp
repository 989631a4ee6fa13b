#include "tests/device/order.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::testing {

void Merge(const Clock& from, Clock& into) {
  for (const auto& [stream, task] : from) into[stream] = std::max(into[stream], task);
}

bool Order::IsAfter(int stream, const Clock& clock) {
  const Clock& seen = After(stream);
  return std::ranges::all_of(clock, [&](const auto& each) {
    const auto found = seen.find(each.first);
    return each.second == 0 || (found != seen.end() && found->second >= each.second);
  });
}

std::int64_t Order::Begin(int stream) {
  Clock& seen = seen_[stream];
  Merge(host_, seen);
  return ++seen[stream];
}

std::string Order::Read(Accesses& memory, int stream, const std::string& name) {
  memory.reads[stream] = seen_[stream][stream];
  if (memory.writer < 0 || IsBefore(memory.writer, memory.written, stream)) return {};
  return fmt::format("{} on stream {} reads what {} writes on stream {}, without waiting for it",
                     name, stream, memory.writer_name, memory.writer);
}

std::string Order::Write(Accesses& memory, int stream, const std::string& name) {
  std::string race;
  if (memory.writer >= 0 && !IsBefore(memory.writer, memory.written, stream)) {
    race = fmt::format("{} on stream {} writes what {} writes on stream {}, without waiting for it",
                       name, stream, memory.writer_name, memory.writer);
  }
  for (const auto& [reader, task] : memory.reads) {
    if (!race.empty() || IsBefore(reader, task, stream)) continue;
    race = fmt::format("{} on stream {} writes what stream {} reads, without waiting for it", name,
                       stream, reader);
  }
  memory = {stream, seen_[stream][stream], name, {}};
  return race;
}

}  // namespace penstock::testing
