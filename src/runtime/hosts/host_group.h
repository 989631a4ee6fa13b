// HostGroup: the hosts of one run, and the frames that they exchange.
//
// Hosts exchange frames over channels. A channel has one end on every host. It delivers the frames
// of one sender in order, each exactly once, and keeps frames for a host that has not opened its
// end yet. Channels are matched by the order in which each host creates them, which must be the
// same on all hosts.
//
// To connect hosts in another way (TCP, MPI), derive a class that sends a frame's bytes to another
// host (SendFrame), and that reports frames that arrive (Deliver) and hosts that vanish (Lose).
//
// Thread-safe.
// Errors: Abort ends the run on every host. So does a host that vanishes before it has called
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

// Describes a frame. The users of a channel define the meaning of the fields.
struct FrameTag {
  std::int32_t kind = 0;
  std::int32_t index = 0;
  std::int64_t number = 0;
};

class HostGroup {
 public:
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;
  virtual ~HostGroup() = default;

  int host() const { return host_; }
  int hosts() const { return hosts_; }
  // Returns "host 3", and the machine's name if it is known: "host 3 on node17".
  std::string NameOf(int host) const;

  // Ends the run on all hosts. The first reason on a host wins.
  void Abort(const Error& reason);
  bool aborted() const { return aborted_.load(std::memory_order_seq_cst); }
  // Requires aborted().
  Error reason() const;
  // Returns the first host that was lost, or -1.
  int lost() const { return lost_.load(); }

  // A thread that waits for a frame may look for it itself, which is faster than to be woken by a
  // thread of the group. Between BeginPoll and EndPoll it calls Poll, which delivers frames that
  // have arrived. They do nothing if the group cannot be polled.
  virtual void BeginPoll() {}
  virtual void Poll() {}
  virtual void EndPoll() {}

  // Notes what a host does, for the error if it is lost.
  void NoteActivity(int host, std::string activity);

  // Declares that this host and the others need nothing more from each other. If it vanishes later,
  // the others continue.
  void Leave();

 protected:
  // `machines` are the machines' names by host, empty if unknown.
  HostGroup(int host, int hosts, std::vector<std::string> machines = {})
      : host_(host),
        hosts_(hosts),
        machines_(std::move(machines)),
        activities_(hosts),
        left_(hosts) {}

  // Sends a frame to another host, in the order of the calls. Never waits for the receiver, and
  // never calls Deliver of this host. The receiver gets the message as Packed returns it.
  virtual void SendFrame(int to, std::int64_t channel, const FrameTag& tag, Message message) = 0;

  // Handles a frame that has arrived. The derived class calls it on threads of its own, for the
  // frames of one sender in the order in which they were sent.
  void Deliver(int from, std::int64_t channel, const FrameTag& tag, Message message);
  // Handles the loss of a host: aborts the group unless the host has left.
  void Lose(int host, std::string_view why = "its process has ended or its connection is broken");
  bool HasLeft(int host) const;
  // Returns whether all other hosts have left.
  bool OthersHaveLeft() const;

 private:
  friend class Channel;

  struct Frame {
    int from;
    FrameTag tag;
    Message message;
  };
  struct End;  // this host's end of a channel

  void AbortHere(const Error& reason);
  // Creates the end of the next channel, and returns it with the channel's number.
  std::pair<std::int64_t, std::shared_ptr<End>> AddEnd();
  void RemoveEnd(std::int64_t channel);

  const int host_;
  const int hosts_;
  const std::vector<std::string> machines_;
  std::atomic<int> lost_{-1};
  std::atomic<bool> aborted_{false};
  mutable Mutex mutex_;
  std::vector<std::string> activities_ PENSTOCK_GUARDED_BY(mutex_);  // by host
  bool has_reason_ PENSTOCK_GUARDED_BY(mutex_) = false;
  Error reason_ PENSTOCK_GUARDED_BY(mutex_);
  std::vector<bool> left_ PENSTOCK_GUARDED_BY(mutex_);  // by host
  std::int64_t next_channel_ PENSTOCK_GUARDED_BY(mutex_) = 1;
  std::map<std::int64_t, std::shared_ptr<End>> ends_ PENSTOCK_GUARDED_BY(mutex_);  // by channel
  // Frames of channels that this host has not created yet.
  std::map<std::int64_t, std::vector<Frame>> early_ PENSTOCK_GUARDED_BY(mutex_);
};

// Owns this host's end of a channel.
class Channel {
 public:
  // Called on the group's threads, for one frame at a time. It must not wait. An exception aborts
  // the group. It may send, but must not destroy the channel.
  using OnFrame = std::function<void(int from, const FrameTag& tag, Message message)>;
  // Called once after the group is aborted, on any thread.
  using OnAbort = std::function<void(const Error& reason)>;

  explicit Channel(HostGroup& group);
  // Waits for a running handler, which may still use the channel. So own the channel by a pointer
  // that stays valid during the destructor (std::unique_ptr; not std::optional).
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  HostGroup& group() const { return group_; }

  // Starts to deliver frames, beginning with those that have already arrived. Called once.
  void Open(OnFrame on_frame, OnAbort on_abort);

  // Sends a frame to another host. Never waits.
  void Send(int to, const FrameTag& tag, Message message);
  // Sends the same bytes to all other hosts.
  void SendToOthers(const FrameTag& tag, std::string_view bytes = {});

 private:
  Channel(HostGroup& group, std::pair<std::int64_t, std::shared_ptr<HostGroup::End>> end);

  HostGroup& group_;
  const std::int64_t number_;
  const std::shared_ptr<HostGroup::End> end_;
};

}  // namespace penstock
