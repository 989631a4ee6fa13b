// TcpConnection: frames to and from one other process over a connected socket.
//
// A thread sends what cannot be sent at once, another one receives. Thread-safe.
//
// Either process may end its direction: it sends what is queued and closes the direction. The other
// process then needs to send nothing more, and closes its own. So neither closes the socket while
// frames to it are in flight, which would make TCP drop frames that the other process has not read.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "base/result.h"
#include "runtime/message.h"
#include "runtime/processes/process_group.h"
#include "tcp/tcp_frame.h"
#include "tcp/tcp_mesh.h"
#include "tcp/tcp_socket.h"

namespace penstock {

// Why no more frames arrive.
enum class TcpEnd {
  kClosed,  // the other process has ended its direction, or is lost
  kSilent,
  kForged,  // bytes arrived that the other process has not sent
};

class TcpConnection {
 public:
  // Called on the receiving thread.
  struct Handlers {
    std::function<void(std::int64_t channel, const FrameTag& tag, Message message)> on_frame;
    // A frame had to be dropped.
    std::function<void(const Error& error)> on_error;
    // The last call.
    std::function<void(TcpEnd end)> on_end;
  };

  // A process that sends nothing for `timeout` is silent; one that has nothing to send shows that
  // it runs. Requires that the peer is connected.
  TcpConnection(TcpPeer peer, std::chrono::duration<double> timeout);
  // Requires that Close was called if Start was.
  ~TcpConnection() = default;
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  // Starts to receive. Called once.
  void Start(Handlers handlers);

  // Never waits for the other process, and calls no handler. Drops the frame once the connection
  // has ended.
  void Send(std::int64_t channel, const FrameTag& tag, Message message);
  // Ends this process's direction after the frames sent so far.
  void EndSending();
  // Waits until all frames sent before EndSending are written or the connection has ended.
  void WaitUntilSent();
  // Waits until the other process has ended its direction, too, but not longer than the limit.
  void Close(OwnTimeLimit& limit);

 private:
  enum class Sending { kOpen, kEnding, kBroken };

  void SendQueued();  // of the sending thread
  void ReceiveAll();  // of the receiving thread
  // Returns why the frame is the end, or nothing.
  std::optional<TcpEnd> ReceiveFrame(TcpReader& reader);
  // Reads the tag of a block that has been read, where frames are authenticated.
  std::optional<TcpEnd> CheckTag(TcpReader& reader, const void* data, std::size_t bytes);
  std::optional<TcpEnd> DiscardPayload(TcpReader& reader, std::size_t bytes);
  // Waits for the next frame, and adds beats meanwhile. Returns nothing after the last frame.
  std::optional<TcpOutgoing> NextQueued();
  // Ends both directions. Both threads then end, the receiving one after what has arrived.
  void EndBoth() const;
  // Drops what is queued and wakes the sending thread.
  void Break();

  const Socket socket_;
  // Null if frames are not authenticated.
  const std::unique_ptr<BlockTagger> sent_tagger_;  // of whoever writes
  const std::unique_ptr<BlockTagger> received_tagger_;
  const std::chrono::nanoseconds wait_;  // of the receiving thread, before it counts a silence
  Handlers handlers_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<TcpOutgoing> queue_ PENSTOCK_GUARDED_BY(mutex_);
  Sending sending_ PENSTOCK_GUARDED_BY(mutex_) = Sending::kOpen;
  bool is_writing_ PENSTOCK_GUARDED_BY(mutex_) = false;  // the sending thread, a frame
  bool all_sent_ PENSTOCK_GUARDED_BY(mutex_) = false;
  bool all_received_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::thread sender_;
  std::thread receiver_;
};

}  // namespace penstock
