#include "runtime/mpi/mpi_process_group.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/exception_line.h"
#include "base/index.h"
#include "base/mutex.h"
#include "base/system/own_time.h"
#include "runtime/mpi/call_watch.h"
#include "runtime/mpi/doorbell.h"
#include "runtime/mpi/local_job.h"
#include "runtime/mpi/mpi_frames.h"
#include "runtime/mpi/mpi_transfers.h"
#include "runtime/processes/process_timeout.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// Channels of frames that this file handles.
constexpr std::int64_t kGoodbye = -1;  // the last frame of a process in a loopback
constexpr std::int64_t kBeat = -2;     // shows another machine that this one makes progress

constexpr std::chrono::milliseconds kCheck{250};  // between checks of the other processes
constexpr int kChecksPerBeat = 4;
constexpr double kStuckTimeouts = 1.25;  // so that a process that can still report it does so first
constexpr double kStartTimeouts = 6;     // machines may load their programs from one slow disk
constexpr double kFollowerDelay =
    1.1;  // so that one process reports it, and the launcher ends the others
constexpr std::chrono::seconds kLongestBeat{1};  // after which a process of this machine is stopped
// Open MPI sends messages up to this size through shared memory at once. For longer ones it waits
// for the sender's thread, which comes late while the ranks compute, or reads the sender's memory,
// which fails without a message of ours if that process has been killed. With 8 messages of 16 kB
// per step, two processes reached 0.53 of the tokens/s of threads instead of 0.95.
constexpr const char* kEagerLimitVariable = "OMPI_MCA_btl_vader_eager_limit";
constexpr const char* kEagerLimit = "262144";

// Where the processes of the run are. Frames to process p carry tag p, so that tests can emulate
// several processes in one.
struct MpiPlace {
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Comm machine = MPI_COMM_NULL;  // of this machine's processes; null in a loopback
  int process = 0;
  std::vector<int> mpi_rank_of;               // by process
  std::vector<std::string> machines;          // names, by process
  std::vector<int> first_of_machine;          // by process: the first process on its machine
  std::chrono::duration<double> timeout{20};  // a process that does not respond for longer is lost

  // Whether this process emulates all processes.
  bool is_loopback() const { return machine == MPI_COMM_NULL; }
};

// The first processes of the machines watch each other in a ring, because a machine or its network
// may fail as a whole. Returns the process at `distance` in the ring, or -1 if there is no other
// machine or `process` is not the first one of its machine.
int InRing(const MpiPlace& place, int distance) {
  const std::set<int> firsts(place.first_of_machine.begin(), place.first_of_machine.end());
  if (firsts.size() < 2 || !firsts.contains(place.process)) return -1;
  const std::vector<int> ring(firsts.begin(), firsts.end());
  const auto own = std::find(ring.begin(), ring.end(), place.process) - ring.begin();
  const auto size = std::ssize(ring);
  return ring[Index((own + distance + size) % size)];
}

class MpiProcessGroup final : public ProcessGroup {
 public:
  explicit MpiProcessGroup(MpiPlace place,
                           std::function<void(const std::string&)> on_stuck = nullptr)
      : ProcessGroup(place.process, static_cast<int>(place.mpi_rank_of.size()), place.machines),
        place_(std::move(place)),
        next_in_ring_(InRing(place_, 1)),
        previous_in_ring_(InRing(place_, -1)),
        bell_(place_.communicator, place_.machine),
        seen_(place_.mpi_rank_of.size()),
        on_stuck_(std::move(on_stuck)),
        watch_(place_.timeout * kStuckTimeouts,
               on_stuck_ ? std::function<void()>([this] { EndStuck(); }) : nullptr),
        transfers_({place_.communicator, processes(), watch_,
                    [this](int change) { AddPending(change); },
                    [this](int other) { return aborted() || HasLeft(other); }}),
        thread_([this] { Progress(); }) {}

  ~MpiProcessGroup() override {
    for (int to = 0; place_.is_loopback() && to < processes(); ++to) {
      if (to != process()) SendFrame(to, kGoodbye, {}, AllocateMessage(0));
    }
    ending_.store(true);
    bell_.RingOwn();
    thread_.join();
    // The calls below wait for all processes.
    if (place_.is_loopback() || lost() >= 0 || !OthersHaveLeft()) return;
    const CallWatch::Call call(watch_);
    bell_.Free();
    MPI_Comm_free(&place_.machine);
    MPI_Comm_free(&place_.communicator);
    MPI_Finalize();
  }

  Result<DirectTransfers*> FindDirectTransfers() override {
    if (place_.is_loopback()) return ProcessGroup::FindDirectTransfers();
    PENSTOCK_TRY_STATUS(CheckAccessesDevices());
    return &transfers_;
  }

 private:
  void AddPending(int change) {
    pending_.fetch_add(change);
    if (change > 0) bell_.RingOwn();
  }

  void SendFrame(int to, std::int64_t channel, const FrameTag& tag, Message message) override {
    const CallWatch::Call call(watch_);
    auto sending =
        std::make_unique<SendingFrame>(FrameHeader{channel, tag, process()}, std::move(message));
    sending->Start(place_.mpi_rank_of[Index(to)], to, place_.communicator);
    int done = 0;
    MPI_Test(&sending->request, &done, MPI_STATUS_IGNORE);
    if (done == 0) {
      const MutexLock lock(mutex_);
      sending_.push_back(std::move(sending));
      pending_.fetch_add(1);
    }
    bell_.RingForFrame(to);
    if (done == 0) bell_.RingOwn();
  }

  // The progress thread: receives frames and completes sends.
  void Progress() {
    for (int idle = 0;;) {
      const std::uint32_t seen = bell_.rings();
      if (MakeProgress()) {
        idle = 0;
        continue;
      }
      if (ending_.load() && MayEnd()) return;
      Pause(seen, ++idle);
      if (Clock::now() - last_check_ >= kCheck) CheckProcesses();
    }
  }

  void BeginPoll() override { bell_.BeginPoll(); }
  void Poll() override {
    // Not watched here: if this does not return, nor does the progress thread's next lock.
    if (!progress_.TryLock()) return;
    Receive();
    progress_.Unlock();
  }
  void EndPoll() override {
    // Else the progress thread would be woken for them.
    constexpr int kMostFrames = 64;
    for (int i = 0; i < kMostFrames && HasFrames(); ++i) Poll();
    bell_.EndPoll();
    if (HasFrames()) bell_.RingOwn();
  }

  // Whether processes of this machine have sent frames that are not received yet.
  bool HasFrames() const { return bell_.frames() != received_.load(); }

  // Returns whether a frame has arrived or was sent.
  bool MakeProgress() {
    const CallWatch::Call call(watch_);
    const MutexLock lock(progress_);
    return Receive() | CompleteSends();
  }

  bool Receive() PENSTOCK_REQUIRES(progress_) {
    try {
      return ReceiveOne();
    } catch (const std::exception& error) {  // no memory for a message
      Abort({ErrorCode::kUnavailable,
             fmt::format("{}: {}", NameOf(process()), ExceptionLine(error))});
      return true;
    }
  }

  // Ends the process, because the threads that would report it may be the ones that are stuck.
  void EndStuck() {
    std::string reason;
    if (!aborted()) {
      reason = fmt::format("{}: MPI, or a disk, has not answered for {} s", NameOf(process()),
                           (place_.timeout * kStuckTimeouts).count());
    } else if (!ending_.load()) {
      reason = this->reason().message;
    }
    on_stuck_(reason);
  }

  // Loses the processes that have ended or do not respond.
  void CheckProcesses() {
    const CallWatch::Call call(watch_);
    const MutexLock lock(progress_);
    const Clock::time_point now = Clock::now();
    // If this process itself was stopped, it has not looked at the others.
    const bool was_stopped = now - last_check_ > place_.timeout / 4;
    last_check_ = now;
    bell_.Beat();
    if (was_stopped) {
      for (Seen& seen : seen_) seen.time = now;
      return;  // frames of processes that have ended meanwhile may wait
    }
    if (next_in_ring_ >= 0 && checks_++ % kChecksPerBeat == 0) {
      SendFrame(next_in_ring_, kBeat, {}, AllocateMessage(0));
    }
    is_peer_stopped_ = false;
    for (int other = 0; other < processes(); ++other) {
      const bool is_local = other != process() && bell_.is_local(other);
      if (!is_local && other != previous_in_ring_) continue;
      Seen& seen = seen_[Index(other)];
      if (is_local && seen.beats != bell_.beats(other)) {
        seen.beats = bell_.beats(other);
        seen.time = now;
      }
      if (is_local && now - seen.time > kLongestBeat) is_peer_stopped_ = true;
      if (is_local && bell_.HasEnded(other)) Lose(other, "it has ended");
      if (now - seen.time > place_.timeout) {
        Lose(other, fmt::format("it has not responded for {} s", place_.timeout.count()));
      }
    }
  }

  void Pause(std::uint32_t seen, int idle) {
    constexpr int kYields = 50, kYieldsInFrame = 20'000;
    const bool receives = is_receiving_.load();
    const bool expects = receives || pending_.load() > 0 || HasFrames();
    if (expects && idle < (receives ? kYieldsInFrame : kYields)) {
      std::this_thread::yield();
    } else if (expects && is_peer_stopped_) {
      bell_.Wait(seen, std::chrono::milliseconds(2));
    } else if (expects || !bell_.all_local()) {
      bell_.Wait(seen, std::chrono::microseconds(expects ? 20 : std::min(20 * idle, 200)));
    } else {
      bell_.Wait(seen, std::chrono::milliseconds(100));
    }
  }

  // Returns whether a frame has arrived. Does not wait for the rest of a frame: MPI may need its
  // sender, which may be stopped.
  bool ReceiveOne() PENSTOCK_REQUIRES(progress_) {
    if (!is_receiving_.load() && !StartReceive()) return false;
    int done = 0;
    const int error = MPI_Test(&receiving_.request, &done, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS && done == 0) return false;
    is_receiving_.store(false);
    if (error == MPI_SUCCESS) Handle(receiving_.Take());  // else the sender is lost
    return true;
  }

  bool StartReceive() PENSTOCK_REQUIRES(progress_) {
    int there = 0;
    MPI_Message probed = MPI_MESSAGE_NULL;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, process(), place_.communicator, &there, &probed, &status);
    if (there == 0) return false;
    MPI_Count bytes = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
    receiving_ = {};
    receiving_.Start(probed, static_cast<std::size_t>(bytes));
    is_receiving_.store(true);
    return true;
  }

  void Handle(std::pair<FrameHeader, Message> frame) PENSTOCK_REQUIRES(progress_) {
    auto& [header, message] = frame;
    if (bell_.is_local(header.from)) received_.fetch_add(1);
    if (header.channel == kGoodbye) {
      Lose(header.from);
    } else if (header.channel == kBeat) {
      seen_[Index(header.from)].time = Clock::now();
    } else {
      Deliver(header.from, header.channel, header.tag, std::move(message));
    }
  }

  bool CompleteSends() {
    if (pending_.load() == 0) return false;
    std::vector<std::unique_ptr<SendingFrame>> completed;  // released without the lock
    const MutexLock lock(mutex_);
    for (auto& sending : sending_) {
      int done = 0;
      MPI_Test(&sending->request, &done, MPI_STATUS_IGNORE);
      if (done != 0) completed.push_back(std::move(sending));
    }
    std::erase(sending_, nullptr);
    pending_.fetch_sub(static_cast<int>(completed.size()));
    return !completed.empty();
  }

  // Returns whether no frame is in flight and all processes have left, or do not within Patience().
  bool MayEnd() {
    const bool is_idle = pending_.load() == 0 && !is_receiving_.load();
    if (is_idle && (place_.is_loopback() || OthersHaveLeft())) return true;
    if (!patience_) patience_.emplace(Patience());
    return patience_->IsOver();
  }

  // If another machine is lost, mpirun must notice before this process ends. Otherwise it requests
  // that machine to end its processes and waits for the answer, for a quarter of an hour.
  std::chrono::milliseconds Patience() const {
    constexpr std::chrono::milliseconds kForAll{5000}, kWithoutAll{200}, kForLauncher{20'000};
    if (place_.is_loopback()) return kWithoutAll;
    for (int other = 0; other < processes(); ++other) {
      if (other != process() && !bell_.is_local(other) && !HasLeft(other)) return kForLauncher;
    }
    return lost() >= 0 ? kWithoutAll : kForAll;
  }

  // When another process was last known to make progress.
  struct Seen {
    std::uint32_t beats = 0;
    Clock::time_point time = Clock::now();
  };

  MpiPlace place_;
  const int next_in_ring_;      // process, or -1
  const int previous_in_ring_;  // process, or -1
  Doorbell bell_;
  Mutex progress_;                                         // held by the thread that receives
  std::vector<Seen> seen_ PENSTOCK_GUARDED_BY(progress_);  // by process
  Clock::time_point last_check_ = Clock::now();
  int checks_ = 0;
  bool is_peer_stopped_ = false;  // on this machine; of the progress thread
  ReceivingFrame receiving_ PENSTOCK_GUARDED_BY(progress_);
  std::atomic<bool> is_receiving_{false};
  std::atomic<bool> ending_{false};
  std::atomic<int> pending_{0};             // sends and transfers that have not completed
  std::atomic<std::uint32_t> received_{0};  // frames from this machine
  std::optional<OwnTimeLimit> patience_;    // of the progress thread, for the end
  Mutex mutex_;
  std::vector<std::unique_ptr<SendingFrame>> sending_ PENSTOCK_GUARDED_BY(mutex_);
  const std::function<void(const std::string& reason)> on_stuck_;
  CallWatch watch_;
  MpiTransfers transfers_;
  std::thread thread_;  // last, because it uses all of the above
};

// Divides cores that processes of this machine share. Launchers bind each process to cores of its
// own unless told otherwise. Collective.
int ShareOfCores(MPI_Comm machine) {
  cpu_set_t own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof(own), &own) != 0) return 1;
  int processes = 0;
  MPI_Comm_size(machine, &processes);
  std::vector<cpu_set_t> all(Index(processes));
  MPI_Allgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE, machine);
  const auto sharing = std::ranges::count_if(
      all, [&](const cpu_set_t& other) { return CPU_EQUAL(&own, &other) != 0; });
  return std::max(1, CPU_COUNT(&own) / static_cast<int>(sharing));
}

Status InitializeMpi() {
  setenv(kEagerLimitVariable, kEagerLimit, /*overwrite=*/0);
  if (IsJobOfOneMachine()) UseSharedMemoryOnly();
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (provided >= MPI_THREAD_MULTIPLE) return {};
  return MakeError(ErrorCode::kUnavailable,
                   "this MPI library does not allow calls from several threads: use one that "
                   "provides MPI_THREAD_MULTIPLE");
}

MPI_Comm Duplicate(MPI_Comm communicator) {
  MPI_Comm_dup(communicator, &communicator);
  MPI_Comm_set_errhandler(communicator,
                          MPI_ERRORS_RETURN);  // sending to a lost process is no failure
  return communicator;
}

// Collective.
void FindMachines(MpiPlace& place) {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  std::vector<std::array<char, MPI_MAX_PROCESSOR_NAME>> names(place.mpi_rank_of.size());
  MPI_Allgather(name.data(), name.size(), MPI_CHAR, names.data(), name.size(), MPI_CHAR,
                place.communicator);
  for (const auto& one : names) place.machines.emplace_back(one.data());
  MPI_Comm_split_type(place.communicator, MPI_COMM_TYPE_SHARED, place.process, MPI_INFO_NULL,
                      &place.machine);
  int first = place.process;
  MPI_Bcast(&first, 1, MPI_INT, 0, place.machine);
  place.first_of_machine.resize(place.mpi_rank_of.size());
  MPI_Allgather(&first, 1, MPI_INT, place.first_of_machine.data(), 1, MPI_INT, place.communicator);
}

}  // namespace

Result<MpiJob> OpenMpiJob(std::function<void(const std::string& reason)> on_stuck) {
  MpiPlace place;
  PENSTOCK_TRY(place.timeout, ProcessTimeout());
  const auto limit = place.timeout * kStartTimeouts;
  CallWatch watch(limit * (LaunchedRank() == 0 ? 1 : kFollowerDelay), [limit, on_stuck] {
    on_stuck(fmt::format(
        "MPI has not started within {} s: a process of the job is stopped, or was not started",
        limit.count()));
  });
  const CallWatch::Call call(watch);
  PENSTOCK_TRY_STATUS(InitializeMpi());
  int count = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &place.process);
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  place.mpi_rank_of.resize(Index(count));
  std::iota(place.mpi_rank_of.begin(), place.mpi_rank_of.end(), 0);
  place.communicator = Duplicate(MPI_COMM_WORLD);
  FindMachines(place);
  const int cores = ShareOfCores(place.machine);
  return MpiJob{std::make_unique<MpiProcessGroup>(std::move(place), std::move(on_stuck)), cores};
}

std::vector<std::unique_ptr<ProcessGroup>> MakeMpiLoopback(int processes) {
  static const Status kInitialized = InitializeMpi();
  PENSTOCK_CHECK(kInitialized, "{}", kInitialized.error().line());
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  const MPI_Comm communicator = Duplicate(MPI_COMM_SELF);
  for (int process = 0; process < processes; ++process) {
    groups.push_back(std::make_unique<MpiProcessGroup>(MpiPlace{
        communicator, MPI_COMM_NULL, process, std::vector<int>(Index(processes), 0), {}, {}}));
  }
  return groups;
}

}  // namespace penstock
