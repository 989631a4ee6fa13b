// Frames as bytes of a TCP connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/message.h"
#include "runtime/processes/process_group.h"
#include "tcp/tcp_keys.h"
#include "tcp/tcp_socket.h"

namespace penstock {

// The start of each frame. The payload follows as Message::Pack writes it. Where frames are
// authenticated, a tag follows the header, so that no length is believed before, and another one
// the payload unless it is empty.
struct TcpFrameHeader {
  std::int64_t channel;
  FrameTag tag;
  std::uint64_t bytes;  // of the payload
};
static_assert(sizeof(TcpFrameHeader) == 32);

// A frame that is being written. Its message stays where it is.
class TcpOutgoing {
 public:
  TcpOutgoing(std::int64_t channel, const FrameTag& tag, Message message);

  std::size_t payload_bytes() const { return header_.bytes; }
  // Writes as much as the connection takes. `flags` as for send(). `tagger` is null if frames are
  // not authenticated. Returns 0 once the whole frame is written, else an errno.
  int Write(const Socket& socket, int flags, BlockTagger* tagger);

 private:
  struct Tags {
    BlockTagger::Tag header, payload;
  };
  Tags MakeTags(BlockTagger& tagger) const;
  std::size_t bytes() const;  // of the whole frame

  TcpFrameHeader header_;
  Message message_;
  std::optional<Tags> tags_;
  std::size_t written_ = 0;
};

// Reads a connection through a buffer, so that a small frame takes one call of the system.
class TcpReader {
 public:
  // A read fails after `silences` waits in a row without any byte. The socket's receive timeout is
  // the time of one wait.
  TcpReader(const Socket& socket, int silences);

  // Reads exactly so many bytes. Returns false if the connection ends before, or is silent.
  bool Read(void* to, std::size_t bytes);
  bool Discard(std::size_t bytes);
  // Whether the last read failed because nothing arrived.
  bool is_silent() const { return is_silent_; }

 private:
  std::size_t TakeBuffered(void* to, std::size_t bytes);
  // Receives at least one byte. Returns 0 at the end of the connection.
  std::size_t Receive(void* to, std::size_t bytes);

  const Socket& socket_;
  const int silences_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  // of the bytes in the buffer that are not read yet
  std::size_t end_ = 0;
  bool is_silent_ = false;
};

}  // namespace penstock
