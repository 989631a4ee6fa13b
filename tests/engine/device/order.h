// What is known to happen before what on the test device: vector clocks of its streams.
//
// Streams and the host are ordered only by events and by waits of the host. Two accesses of the
// same memory, at least one of them a write, are a race if neither is ordered before the other,
// whether or not they met in this run (Lamport 1978; Mattern 1989). All threads of the host count
// as one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace penstock::testing {

// The number of the last task, by stream; 0, or an end before the stream: none. Tests make
// thousands of streams, which most of a clock is about.
using Clock = std::vector<std::int64_t>;

void Merge(const Clock& from, Clock& into);
inline std::int64_t At(const Clock& clock, int stream) {
  const auto i = static_cast<std::size_t>(stream);
  return i < clock.size() ? clock[i] : 0;
}

// The accesses of one block of memory that later ones must be ordered after.
struct Accesses {
  int writer = -1;  // stream; -1: none
  std::int64_t written = 0;
  std::string writer_name;
  std::map<int, std::int64_t> reads;  // the last task, by stream
};

// Threads: one at a time.
class Order {
 public:
  // A task begins on the stream, after all that the host has waited for. Returns its number.
  std::int64_t Begin(int stream);
  // What is before a task that the stream would begin now.
  const Clock& After(int stream) { return SeenBy(stream).clock; }
  // Whether the stream is already ordered after all of it.
  bool IsAfter(int stream, const Clock& clock);
  void Wait(int stream, const Clock& for_clock) { Merge(for_clock, SeenBy(stream).clock); }
  void WaitOnHost(const Clock& for_clock) {
    Merge(for_clock, host_);
    ++host_waits_;
  }

  // Checks that the last task of the stream may access the memory, and records that it does.
  // Returns a line about the race, or nothing.
  std::string Read(Accesses& memory, int stream, const std::string& name);
  std::string Write(Accesses& memory, int stream, const std::string& name);

 private:
  struct Seen {
    Clock clock;
    std::int64_t host_waits = 0;  // that are in the clock
  };
  // What the stream is ordered after, all that the host has waited for included.
  Seen& SeenBy(int stream);
  bool IsBefore(int stream, std::int64_t task, int now) {
    return At(seen_[static_cast<std::size_t>(now)].clock, stream) >= task;
  }
  std::int64_t LastOf(int stream) {
    return At(seen_[static_cast<std::size_t>(stream)].clock, stream);
  }

  std::deque<Seen> seen_;  // by stream; references stay valid
  Clock host_;
  std::int64_t host_waits_ = 0;
};

}  // namespace penstock::testing
