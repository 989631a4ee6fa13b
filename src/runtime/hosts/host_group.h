// HostGroup: the hosts of one run, and everything they exchange beside the messages of a step.
//
// Hosts exchange frames over channels. A channel has one end on every host; it delivers the frames
// of one sender in order, each exactly once, and keeps frames for a host that has not opened its
// end yet. Channels are matched by the order in which each host makes them, which must be the same
// on all hosts.
//
// To connect hosts in another way (TCP, MPI), derive a class: it sends a frame's bytes to another
// host (SendFrame) and passes on what arrives (Deliver) and who is gone (Lose).
//
// Threads: any, unless said otherwise.
// Errors:  Abort ends the run on every host; so does a host that is gone before it has called
//          Leave.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/message.h"

namespace penstock {

// What a frame is about. Its meaning is up to the channel's users.
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
  int hosts() const { return static_cast<int>(left_.size()); }

  // Ends the run on all hosts. The first reason on a host wins, later ones are dropped.
  void Abort(const Error& reason);
  bool aborted() const { return aborted_.load(std::memory_order_seq_cst); }
  // Requires aborted().
  Error reason() const;

  // This host needs nothing more from the others, nor they from it. When it is gone now, the others
  // go on.
  void Leave();

 protected:
  HostGroup(int host, int hosts) : host_(host), left_(hosts) {}

  // Sends a frame to another host, after those that this host has sent it before. Never waits for
  // the receiver, and never calls Deliver of this host. The receiver gets the message as Packed
  // returns it.
  virtual void SendFrame(int to, std::int64_t channel, const FrameTag& tag, Message message) = 0;

  // For the deriving class, from threads of its own: a frame has arrived; frames of one sender in
  // the order in which they were sent.
  void Deliver(int from, std::int64_t channel, const FrameTag& tag, Message message);
  // The host is gone: its process has ended or its connection is broken.
  void Lose(int host);

 private:
  friend class Channel;

  struct Frame {
    int from;
    FrameTag tag;
    Message message;
  };
  struct End;  // of a channel, on this host

  void AbortHere(const Error& reason);
  static void NotifyOfAbort(End& end, const Error& reason);
  void Handle(End& end, Frame frame);

  const int host_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool has_reason_ = false;
  Error reason_;
  std::vector<bool> left_;  // by host
  std::int64_t next_channel_ = 1;
  std::map<std::int64_t, std::shared_ptr<End>> ends_;  // by channel
  std::map<std::int64_t, std::vector<Frame>> early_;  // of channels that this host has not made yet
};

// This host's end of a channel, until the object is destroyed.
class Channel {
 public:
  // Called on the group's threads, one frame at a time; must not wait. What it throws aborts the
  // group. It may send, but not destroy the channel.
  using OnFrame = std::function<void(int from, const FrameTag& tag, Message message)>;
  // Called once when the group is aborted, on any thread.
  using OnAbort = std::function<void(const Error& reason)>;

  explicit Channel(HostGroup& group);
  // Waits for a handler that runs, which may still use the channel: own it by a pointer that stays
  // as it is until then (an std::optional is empty before).
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  HostGroup& group() const { return group_; }

  // Begins to deliver frames, with those that have arrived so far. Called once.
  void Open(OnFrame on_frame, OnAbort on_abort);

  // Sends to another host. Never waits.
  void Send(int to, const FrameTag& tag, Message message);
  // The same bytes to all other hosts.
  void SendToOthers(const FrameTag& tag, std::string_view bytes = {});

 private:
  HostGroup& group_;
  const std::shared_ptr<HostGroup::End> end_;
  std::int64_t number_ = 0;
};

}  // namespace penstock
