#include "tcp/tcp_connection.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "base/exception_line.h"

namespace penstock {
namespace {

// A frame that shows only that its sender runs.
constexpr std::int64_t kBeatChannel = -1;
constexpr int kSilences = 4;  // waits in a row without any byte
// Larger frames are left to the sending thread, so that a rank need not copy them into the
// system's buffers.
constexpr std::size_t kMostAtOnce = std::size_t{64} << 10;  // bytes

void SetReceiveTimeout(const Socket& socket, std::chrono::nanoseconds wait) {
  const auto micros = std::chrono::ceil<std::chrono::microseconds>(wait).count();
  timeval time{};
  time.tv_sec = micros / 1'000'000;
  time.tv_usec = micros % 1'000'000;
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
}

}  // namespace

TcpConnection::TcpConnection(TcpPeer peer, std::chrono::duration<double> timeout)
    : socket_(std::move(peer.socket)),
      sent_tagger_(std::move(peer.sent)),
      received_tagger_(std::move(peer.received)),
      wait_(std::chrono::ceil<std::chrono::nanoseconds>(timeout / kSilences)) {
  SetReceiveTimeout(socket_, wait_);
}

void TcpConnection::Start(Handlers handlers) {
  handlers_ = std::move(handlers);
  sender_ = std::thread([this] { SendQueued(); });
  receiver_ = std::thread([this] { ReceiveAll(); });
}

void TcpConnection::Send(std::int64_t channel, const FrameTag& tag, Message message) {
  TcpOutgoing frame(channel, tag, std::move(message));  // released without the lock
  const MutexLock lock(mutex_);
  if (sending_ != Sending::kOpen) return;
  if (queue_.empty() && !is_writing_ && frame.payload_bytes() <= kMostAtOnce) {
    const int error = frame.Write(socket_, MSG_DONTWAIT, sent_tagger_.get());
    if (error != 0 && error != EAGAIN) EndBoth();
    if (error != EAGAIN) return;
  }
  queue_.push_back(std::move(frame));
  changed_.NotifyAll();
}

void TcpConnection::EndSending() {
  const MutexLock lock(mutex_);
  if (sending_ == Sending::kOpen) sending_ = Sending::kEnding;
  changed_.NotifyAll();
}

void TcpConnection::WaitUntilSent() {
  MutexLock lock(mutex_);
  while (!all_sent_) changed_.Wait(lock);
}

void TcpConnection::Close(OwnTimeLimit& limit) {
  {
    MutexLock lock(mutex_);
    while (!all_received_ && !limit.IsOver()) {
      static_cast<void>(changed_.WaitUntil(lock, limit.NextLook()));
    }
    if (!all_received_) EndBoth();
  }
  sender_.join();
  receiver_.join();
}

void TcpConnection::SendQueued() {
  while (std::optional<TcpOutgoing> frame = NextQueued()) {
    if (frame->Write(socket_, 0, sent_tagger_.get()) != 0) EndBoth();
  }
  shutdown(socket_.fd(), SHUT_WR);
  const MutexLock lock(mutex_);
  all_sent_ = true;
  changed_.NotifyAll();
}

std::optional<TcpOutgoing> TcpConnection::NextQueued() {
  MutexLock lock(mutex_);
  is_writing_ = false;
  while (queue_.empty() && sending_ == Sending::kOpen) {
    if (changed_.WaitUntil(lock, std::chrono::steady_clock::now() + wait_ / 2)) continue;
    if (queue_.empty() && sending_ == Sending::kOpen) {
      queue_.emplace_back(kBeatChannel, FrameTag(), AllocateMessage(0));
    }
  }
  if (queue_.empty()) return std::nullopt;
  is_writing_ = true;
  std::optional<TcpOutgoing> frame = std::move(queue_.front());
  queue_.pop_front();
  return frame;
}

void TcpConnection::ReceiveAll() {
  TcpReader reader(socket_, kSilences);
  std::optional<TcpEnd> end;
  while (!end) end = ReceiveFrame(reader);
  Break();
  handlers_.on_end(reader.is_silent() ? TcpEnd::kSilent : *end);
  const MutexLock lock(mutex_);
  all_received_ = true;
  changed_.NotifyAll();
}

std::optional<TcpEnd> TcpConnection::ReceiveFrame(TcpReader& reader) {
  TcpFrameHeader header;
  if (!reader.Read(&header, sizeof(header))) return TcpEnd::kClosed;
  if (const auto end = CheckTag(reader, &header, sizeof(header))) return end;
  Message message;
  try {
    message = AllocateMessage(header.bytes);
  } catch (const std::exception& error) {
    handlers_.on_error({ErrorCode::kUnavailable, ExceptionLine(error)});
    return DiscardPayload(reader, header.bytes);
  }
  if (!reader.Read(message.data(), header.bytes)) return TcpEnd::kClosed;
  if (header.bytes > 0) {
    if (const auto end = CheckTag(reader, message.data(), header.bytes)) return end;
  }
  if (header.channel != kBeatChannel) {
    handlers_.on_frame(header.channel, header.tag, std::move(message));
  }
  return std::nullopt;
}

std::optional<TcpEnd> TcpConnection::CheckTag(TcpReader& reader, const void* data,
                                              std::size_t bytes) {
  if (!received_tagger_) return std::nullopt;
  BlockTagger::Tag tag;
  if (!reader.Read(&tag, sizeof(tag))) return TcpEnd::kClosed;
  received_tagger_->Add(data, bytes);
  if (!received_tagger_->Matches(tag)) return TcpEnd::kForged;
  return std::nullopt;
}

std::optional<TcpEnd> TcpConnection::DiscardPayload(TcpReader& reader, std::size_t bytes) {
  if (received_tagger_) {
    received_tagger_->Finish();  // counts the block
    bytes += sizeof(BlockTagger::Tag);
  }
  if (!reader.Discard(bytes)) return TcpEnd::kClosed;
  return std::nullopt;
}

void TcpConnection::EndBoth() const { shutdown(socket_.fd(), SHUT_RDWR); }

void TcpConnection::Break() {
  std::deque<TcpOutgoing> dropped;  // released without the lock
  const MutexLock lock(mutex_);
  sending_ = Sending::kBroken;
  std::swap(dropped, queue_);
  shutdown(socket_.fd(), SHUT_WR);  // ends a write that waits for the other process
  changed_.NotifyAll();
}

}  // namespace penstock
