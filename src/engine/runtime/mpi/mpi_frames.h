// The frames of an MPI process group as MPI sends and receives them. Private to runtime/mpi.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/message.h"
#include "runtime/processes/process_group.h"

namespace penstock {

constexpr std::size_t kMostInOnePiece = std::size_t{1} << 30;  // bytes; MPI counts them in int

// The start of each frame. The payload follows as Message::Pack writes it.
struct alignas(Message::kAlign) FrameHeader {
  std::int64_t channel;
  FrameTag tag;
  std::int32_t from;  // process
};
static_assert(sizeof(FrameHeader) == Message::kAlign);

// A frame that MPI is still reading.
struct SendingFrame {
  SendingFrame(const FrameHeader& its_header, Message its_message)
      : header(its_header), message(std::move(its_message)) {}

  FrameHeader header;
  Message message;
  std::vector<std::byte> copy;  // of a short frame
  MPI_Request request = MPI_REQUEST_NULL;

  // Never waits.
  void Start(int mpi_rank, int tag, MPI_Comm communicator);
};

// A frame that MPI is still writing. It arrives in one piece of memory, unless MPI cannot count its
// bytes.
struct ReceivingFrame {
  FrameHeader header;
  Message message;  // the payload; with the header in front of it in one piece
  bool in_one_piece = true;
  MPI_Request request = MPI_REQUEST_NULL;

  // Never waits.
  void Start(MPI_Message& probed, std::size_t bytes);

  // Requires that MPI has completed the request.
  std::pair<FrameHeader, Message> Take();
};

}  // namespace penstock
