#include "runtime/mpi/mpi_frames.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace penstock {
namespace {

constexpr std::array<std::byte, Message::kAlign> kPadding{};
// Below the limit up to which Open MPI sends messages at once (mpi_process_group.cpp).
constexpr std::size_t kMostCopied = 224 * 1024;  // bytes of frames that are copied into one piece

// Describes header and parts where they are, so that MPI sends them without a copy.
class FrameType {
 public:
  FrameType(const FrameHeader& header, const Message& message) {
    Add(&header, sizeof(header));
    std::size_t end = 0;
    for (const MessagePart& part : message.parts()) {
      Add(kPadding.data(), Message::Align(end) - end);
      Add(part.data, part.bytes);
      end = Message::Align(end) + part.bytes;
    }
    MPI_Type_create_hindexed(static_cast<int>(sizes_.size()), sizes_.data(), addresses_.data(),
                             MPI_BYTE, &type_);
    MPI_Type_commit(&type_);
  }
  ~FrameType() { MPI_Type_free(&type_); }  // pending sends keep it
  FrameType(const FrameType&) = delete;
  FrameType& operator=(const FrameType&) = delete;

  MPI_Datatype get() const { return type_; }

 private:
  // A block has at most INT_MAX bytes.
  void Add(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const std::byte*>(data);
    for (std::size_t done = 0; done < bytes; done += kMostInOnePiece) {
      sizes_.push_back(static_cast<int>(std::min(kMostInOnePiece, bytes - done)));
      MPI_Aint address = 0;
      MPI_Get_address(at + done, &address);
      addresses_.push_back(address);
    }
  }

  std::vector<int> sizes_;
  std::vector<MPI_Aint> addresses_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

}  // namespace

void SendingFrame::Start(int mpi_rank, int tag, MPI_Comm communicator) {
  const std::size_t bytes = sizeof(header) + message.bytes();
  if (bytes > kMostCopied) {
    const FrameType type(header, message);
    MPI_Isend(MPI_BOTTOM, 1, type.get(), mpi_rank, tag, communicator, &request);
    return;
  }
  copy.resize(bytes);
  std::memcpy(copy.data(), &header, sizeof(header));
  message.Pack(copy.data() + sizeof(header));
  MPI_Isend(copy.data(), static_cast<int>(bytes), MPI_BYTE, mpi_rank, tag, communicator, &request);
}

void ReceivingFrame::Start(MPI_Message& probed, std::size_t bytes) {
  in_one_piece = bytes <= kMostInOnePiece;
  message = AllocateMessage(in_one_piece ? bytes : bytes - sizeof(header));
  if (in_one_piece) {
    MPI_Imrecv(message.data(), static_cast<int>(bytes), MPI_BYTE, &probed, &request);
    return;
  }
  const MessagePart payload{message.data(), message.bytes()};
  const FrameType type(header, Message(std::span(&payload, 1), nullptr, nullptr));
  MPI_Imrecv(MPI_BOTTOM, 1, type.get(), &probed, &request);
}

std::pair<FrameHeader, Message> ReceivingFrame::Take() {
  if (!in_one_piece) return {header, std::move(message)};
  auto* const data = static_cast<std::byte*>(message.data());
  std::memcpy(&header, data, sizeof(header));
  const std::size_t bytes = message.bytes() - sizeof(header);
  const Message::Release release = message.release();
  return {header, Message(data + sizeof(header), bytes, message.TakeOwner(), release)};
}

}  // namespace penstock
