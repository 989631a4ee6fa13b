#include "tcp/tcp_frame.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock {
namespace {

constexpr std::size_t kBuffer = std::size_t{64} << 10;  // bytes
constexpr std::array<std::byte, Message::kAlign> kGap{};

// The next pieces of memory to write.
class Pieces {
 public:
  explicit Pieces(std::size_t skip) : skip_(skip) {}

  void Add(const void* data, std::size_t bytes) {
    if (bytes <= skip_) {
      skip_ -= bytes;
    } else if (count_ < pieces_.size()) {
      auto* const at = static_cast<std::byte*>(const_cast<void*>(data));
      pieces_[count_++] = {at + skip_, bytes - skip_};
      skip_ = 0;
    }
  }
  ssize_t Send(const Socket& socket, int flags) {
    msghdr message{};
    message.msg_iov = pieces_.data();
    message.msg_iovlen = count_;
    return sendmsg(socket.fd(), &message, flags | MSG_NOSIGNAL);
  }

 private:
  std::size_t skip_;  // bytes that are written already
  std::array<iovec, 64> pieces_;
  std::size_t count_ = 0;
};

// Calls function(data, bytes) for each piece of the payload, including the gaps between parts.
template <class Function>
void ForEachPiece(const Message& message, Function&& function) {
  std::size_t end = 0;
  for (const MessagePart& part : message.parts()) {
    function(kGap.data(), Message::Align(end) - end);
    function(part.data, part.bytes);
    end = Message::Align(end) + part.bytes;
  }
}

}  // namespace

TcpOutgoing::TcpOutgoing(std::int64_t channel, const FrameTag& tag, Message message)
    : header_{channel, tag, message.bytes()}, message_(std::move(message)) {}

TcpOutgoing::Tags TcpOutgoing::MakeTags(BlockTagger& tagger) const {
  Tags tags;
  tagger.Add(&header_, sizeof(header_));
  tags.header = tagger.Finish();
  if (header_.bytes == 0) return tags;
  ForEachPiece(message_, [&](const void* data, std::size_t bytes) { tagger.Add(data, bytes); });
  tags.payload = tagger.Finish();
  return tags;
}

std::size_t TcpOutgoing::bytes() const {
  const std::size_t plain = sizeof(header_) + header_.bytes;
  if (!tags_) return plain;
  return plain + sizeof(tags_->header) + (header_.bytes > 0 ? sizeof(tags_->payload) : 0);
}

int TcpOutgoing::Write(const Socket& socket, int flags, BlockTagger* tagger) {
  if (tagger != nullptr && !tags_) tags_ = MakeTags(*tagger);
  while (written_ < bytes()) {
    Pieces pieces(written_);
    pieces.Add(&header_, sizeof(header_));
    if (tags_) pieces.Add(&tags_->header, sizeof(tags_->header));
    ForEachPiece(message_, [&](const void* data, std::size_t bytes) { pieces.Add(data, bytes); });
    if (tags_ && header_.bytes > 0) pieces.Add(&tags_->payload, sizeof(tags_->payload));
    const ssize_t sent = pieces.Send(socket, flags);
    if (sent >= 0) {
      written_ += static_cast<std::size_t>(sent);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

TcpReader::TcpReader(const Socket& socket, int silences)
    : socket_(socket), silences_(silences), buffer_(kBuffer) {}

bool TcpReader::Read(void* to, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    std::size_t got = TakeBuffered(at, bytes);
    if (got == 0 && bytes >= buffer_.size()) {
      got = Receive(at, bytes);
    } else if (got == 0) {
      begin_ = 0;
      end_ = Receive(buffer_.data(), buffer_.size());
      got = TakeBuffered(at, bytes);
    }
    if (got == 0) return false;
    at += got;
    bytes -= got;
  }
  return true;
}

bool TcpReader::Discard(std::size_t bytes) {
  std::array<std::byte, 4096> unused;
  while (bytes > 0) {
    const std::size_t next = std::min(bytes, unused.size());
    if (!Read(unused.data(), next)) return false;
    bytes -= next;
  }
  return true;
}

std::size_t TcpReader::TakeBuffered(void* to, std::size_t bytes) {
  const std::size_t taken = std::min(bytes, end_ - begin_);
  if (taken > 0) std::memcpy(to, buffer_.data() + begin_, taken);
  begin_ += taken;
  return taken;
}

std::size_t TcpReader::Receive(void* to, std::size_t bytes) {
  // Silences are counted, not timed: a process that was stopped itself has not listened.
  for (int silent = 0; silent < silences_;) {
    const ssize_t got = recv(socket_.fd(), to, bytes, 0);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EAGAIN) {
      ++silent;
    } else if (errno != EINTR) {
      return 0;
    }
  }
  is_silent_ = true;
  return 0;
}

}  // namespace penstock
