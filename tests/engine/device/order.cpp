#include "tests/engine/device/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::testing {

void Merge(const Clock& from, Clock& into) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

Order::Seen& Order::SeenBy(int stream) {
  const auto i = static_cast<std::size_t>(stream);
  if (seen_.size() <= i) seen_.resize(i + 1);
  Seen& seen = seen_[i];
  if (seen.clock.size() <= i) seen.clock.resize(i + 1);
  if (std::exchange(seen.host_waits, host_waits_) != host_waits_) Merge(host_, seen.clock);
  return seen;
}

bool Order::IsAfter(int stream, const Clock& clock) {
  const Clock& seen = After(stream);
  for (std::size_t i = 0; i < clock.size(); ++i) {
    if (clock[i] > At(seen, static_cast<int>(i))) return false;
  }
  return true;
}

std::int64_t Order::Begin(int stream) {
  return ++SeenBy(stream).clock[static_cast<std::size_t>(stream)];
}

std::string Order::Read(Accesses& memory, int stream, const std::string& name) {
  memory.reads[stream] = LastOf(stream);
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
  memory = {stream, LastOf(stream), name, {}};
  return race;
}

}  // namespace penstock::testing
