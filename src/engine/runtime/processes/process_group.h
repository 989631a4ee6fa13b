// ProcessGroup: the processes of one run, and the frames that they exchange.
//
// Processes exchange frames over channels. A channel has one end on every process. It delivers the
// frames of one sender in order, each exactly once, and keeps frames for a process that has not
// opened its end yet. Channels are matched by the order in which each process creates them, which
// must be the same on all processes.
//
// To connect processes in another way (TCP, MPI), derive a class that sends a frame's bytes to
// another process (SendFrame), and that reports frames that arrive (Deliver) and processes that
// vanish (Lose).
//
// Thread-safe.
// Errors: Abort ends the run on every process. So does a process that vanishes before it has called
// Leave.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "runtime/message.h"

namespace penstock {

class DirectTransfers;

// Describes a frame. The users of a channel define the meaning of the fields.
struct FrameTag {
  std::int32_t kind = 0;
  std::int32_t index = 0;
  std::int64_t number = 0;
};

class ProcessGroup {
 public:
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  virtual ~ProcessGroup() = default;

  int process() const { return process_; }
  int processes() const { return processes_; }
  // The machines' names by process; empty if unknown.
  const std::vector<std::string>& machines() const { return machines_; }
  // Returns "process 3", and the machine's name if it is known: "process 3 on node17".
  std::string NameOf(int process) const;
  // Sets the numbers that names have in place of the processes', for a group that is a part of
  // another one. Called before other threads use the group.
  void SetNumbers(std::vector<int> numbers) { numbers_ = std::move(numbers); }

  // Ends the run on all processes. The first reason on a process wins.
  void Abort(const Error& reason);
  bool aborted() const { return aborted_.load(std::memory_order_seq_cst); }
  // Requires aborted().
  Error reason() const;
  // Returns the first process that was lost, or -1.
  int lost() const { return lost_.load(); }

  // Returns whether a process has called Leave.
  bool HasLeft(int process) const;

  // Whether messages may have parts in memory of a device, which then need not be copied to the
  // host before.
  virtual bool TakesDeviceMessages() const { return false; }

  // Returns the transfers that move device memory between processes without the host. They live as
  // long as the group. Errors: kUnavailable if the group has nothing for that.
  virtual Result<DirectTransfers*> FindDirectTransfers();

  // A thread that waits for a frame may look for it itself, which is faster than to be woken by a
  // thread of the group. Between BeginPoll and EndPoll it calls Poll, which delivers frames that
  // have arrived. They do nothing if the group cannot be polled.
  virtual void BeginPoll() {}
  virtual void Poll() {}
  virtual void EndPoll() {}

  // Notes what a process does, for the error if it is lost.
  void NoteActivity(int process, std::string activity);

  // Declares that this process and the others need nothing more from each other. If it vanishes
  // later, the others continue.
  void Leave();

 protected:
  ProcessGroup(int process, int processes, std::vector<std::string> machines = {})
      : process_(process),
        processes_(processes),
        machines_(std::move(machines)),
        activities_(processes),
        left_(processes) {}

  // Sends a frame to another process, in the order of the calls. Never waits for the receiver, and
  // never calls Deliver of this process. The receiver gets the message as Packed returns it.
  virtual void SendFrame(int to, std::int64_t channel, const FrameTag& tag, Message message) = 0;

  // Handles a frame that has arrived. The derived class calls it on threads of its own, for the
  // frames of one sender in the order in which they were sent.
  void Deliver(int from, std::int64_t channel, const FrameTag& tag, Message message);
  // Handles the loss of a process: aborts the group unless the process has left.
  void Lose(int process, std::string_view why = "it has ended or its connection is broken");
  // Returns whether all other processes have left.
  bool OthersHaveLeft() const;

 private:
  friend class Channel;

  struct Frame {
    int from;
    FrameTag tag;
    Message message;
  };
  struct End;  // this process's end of a channel

  void AbortHere(const Error& reason);
  // Creates the end of the next channel, and returns it with the channel's number.
  std::pair<std::int64_t, std::shared_ptr<End>> AddEnd();
  void RemoveEnd(std::int64_t channel);

  const int process_;
  const int processes_;
  const std::vector<std::string> machines_;
  std::vector<int> numbers_;  // by process; empty: its own
  std::atomic<int> lost_{-1};
  std::atomic<bool> aborted_{false};
  mutable Mutex mutex_;
  std::vector<std::string> activities_ PENSTOCK_GUARDED_BY(mutex_);  // by process
  bool has_reason_ PENSTOCK_GUARDED_BY(mutex_) = false;
  Error reason_ PENSTOCK_GUARDED_BY(mutex_);
  std::vector<bool> left_ PENSTOCK_GUARDED_BY(mutex_);  // by process
  std::int64_t next_channel_ PENSTOCK_GUARDED_BY(mutex_) = 1;
  std::map<std::int64_t, std::shared_ptr<End>> ends_ PENSTOCK_GUARDED_BY(mutex_);  // by channel
  // Frames of channels that this process has not created yet.
  std::map<std::int64_t, std::vector<Frame>> early_ PENSTOCK_GUARDED_BY(mutex_);
};

// Owns this process's end of a channel.
class Channel {
 public:
  // Called on the group's threads, for one frame at a time. It must not wait. An exception aborts
  // the group. It may send, but must not destroy the channel.
  using OnFrame = std::function<void(int from, const FrameTag& tag, Message message)>;
  // Called once after the group is aborted, on any thread.
  using OnAbort = std::function<void(const Error& reason)>;

  explicit Channel(ProcessGroup& group);
  // Waits for a running handler, which may still use the channel. So own the channel by a pointer
  // that stays valid during the destructor (std::unique_ptr; not std::optional).
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  ProcessGroup& group() const { return group_; }

  // Starts to deliver frames, beginning with the frames that have already arrived. Called once.
  void Open(OnFrame on_frame, OnAbort on_abort);

  // Sends a frame to another process. Never waits.
  void Send(int to, const FrameTag& tag, Message message);
  // Sends the same bytes to all other processes.
  void SendToOthers(const FrameTag& tag, std::string_view bytes = {});

 private:
  Channel(ProcessGroup& group, std::pair<std::int64_t, std::shared_ptr<ProcessGroup::End>> end);

  ProcessGroup& group_;
  const std::int64_t number_;
  const std::shared_ptr<ProcessGroup::End> end_;
};

}  // namespace penstock
