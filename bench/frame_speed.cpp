// Measures frames between two processes: the time of a small one and the bandwidth of large ones.
//
//   mpirun -n 2 frame_speed mpi   the processes of an MPI job
//   frame_speed tcp               two processes connected by TCP through the loopback interface
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string_view>
#include <vector>

#include "bench/bench_processes.h"

namespace penstock {
namespace {

constexpr int kRuns = 9;
constexpr int kRoundTrips = 5000;         // per run
constexpr std::size_t kSmall = 16 << 10;  // bytes
constexpr std::size_t kLarge = 64 << 20;  // bytes
constexpr int kLargeFrames = 16;          // per run
constexpr int kInFlight = 2;              // large frames

enum Kind : std::int32_t { kEcho, kAcknowledge, kAnswer, kDone };

// One end: it answers the other's frames on the group's thread, by frames of equal size or empty
// ones.
class End {
 public:
  explicit End(ProcessGroup& group) : other_(1 - group.process()), channel_(group) {
    channel_.Open([this](int, const FrameTag& tag, Message got) { Handle(tag, std::move(got)); },
                  [](const Error& reason) { fmt::print(stderr, "{}\n", reason.message); });
  }

  void Send(Kind kind, std::vector<char>& bytes) {
    channel_.Send(other_, {kind, 0, 0}, Message(bytes.data(), bytes.size(), &bytes, [](void*) {}));
  }
  void SendDone() { channel_.Send(other_, {kDone, 0, 0}, AllocateMessage(0)); }
  void AwaitAnswers(int answers) {
    for (int now = answers_.load(); now < answers; now = answers_.load()) answers_.wait(now);
  }
  int answers() const { return answers_.load(); }

 private:
  void Handle(const FrameTag& tag, Message got) {
    if (tag.kind == kEcho || tag.kind == kAcknowledge) {
      channel_.Send(other_, {kAnswer, 0, 0},
                    tag.kind == kEcho ? std::move(got) : AllocateMessage(0));
      return;
    }
    answers_.fetch_add(1);
    answers_.notify_all();
  }

  const int other_;
  std::atomic<int> answers_{0};
  Channel channel_;
};

// Returns the seconds that `frames` frames take, with `in_flight` unanswered ones at a time.
double Time(End& end, Kind kind, std::vector<char>& bytes, int frames, int in_flight) {
  const int before = end.answers();
  const auto start = std::chrono::steady_clock::now();
  for (int frame = 0; frame < frames; ++frame) {
    end.AwaitAnswers(before + frame - in_flight + 1);
    end.Send(kind, bytes);
  }
  end.AwaitAnswers(before + frames);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void PrintTimes(std::string_view what, std::vector<double> values, std::string_view unit) {
  std::sort(values.begin(), values.end());
  fmt::print("{:<32} {:8.2f} {} ({:.2f} to {:.2f})\n", what, values[values.size() / 2], unit,
             values.front(), values.back());
}

void Measure(End& end) {
  std::vector<char> none, small(kSmall), large(kLarge);
  std::vector<double> empty_us, small_us, rate;
  for (int run = 0; run < kRuns; ++run) {
    empty_us.push_back(Time(end, kEcho, none, kRoundTrips, 1) / kRoundTrips / 2 * 1e6);
    small_us.push_back(Time(end, kEcho, small, kRoundTrips, 1) / kRoundTrips / 2 * 1e6);
    rate.push_back(double(kLarge) * kLargeFrames /
                   Time(end, kAcknowledge, large, kLargeFrames, kInFlight) / 1e9);
  }
  PrintTimes("empty frame, one way", empty_us, "us");
  PrintTimes("frame of 16 KiB, one way", small_us, "us");
  PrintTimes("frames of 64 MiB", rate, "GB/s");
}

Status Run(std::string_view connected_by) {
  PENSTOCK_TRY(const std::unique_ptr<ProcessGroup> group, OpenBenchProcesses(connected_by, 2));
  End end(*group);
  if (group->process() == 0) {
    Measure(end);
    end.SendDone();
  } else {
    end.AwaitAnswers(1);
  }
  group->Leave();
  return {};
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const penstock::Status status = penstock::Run(argc > 1 ? argv[1] : "tcp");
  if (status) return 0;
  fmt::print(stderr, "frame_speed: {}\n", status.error().line());
  return 1;
}
