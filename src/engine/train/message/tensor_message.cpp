#include "train/message/tensor_message.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/SmallVector.h>
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <stdexcept>

#include "base/byte_stream.h"
#include "base/index.h"
#include "graph/device/device_queue.h"
#include "graph/device/peer_copies.h"
#include "graph/ir/print.h"

namespace penstock {
namespace {

constexpr unsigned kFew = 4;  // tensors that SmallVector stores without an allocation

struct SeveralTensors {
  c10::SmallVector<at::Tensor, kFew> tensors;
  c10::SmallVector<MessagePart, kFew> parts;
  std::optional<DevicePoint> ready;  // when they are computed; none on CPUs
};

void ReleaseOne(void* owner) {
  c10::intrusive_ptr<c10::TensorImpl>::reclaim(static_cast<c10::TensorImpl*>(owner));
}
void ReleaseSeveral(void* owner) { delete static_cast<SeveralTensors*>(owner); }

// Called by the thread of the rank that sends, whose stream has computed the tensors.
Message SeveralOnHost(void* owner) {
  const auto* const several = static_cast<SeveralTensors*>(owner);
  c10::SmallVector<at::Tensor, kFew> tensors;
  for (const at::Tensor& tensor : several->tensors) tensors.push_back(tensor.cpu());
  return ToMessage(tensors);
}

MessagePart PartOf(const at::Tensor& tensor) {
  return {const_cast<void*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::size_t SizeOf(const TensorType& type) { return Index(BytesOf(type)); }

std::runtime_error Mismatch(const std::string& what, std::span<const TensorType> types) {
  std::string expected;
  for (const TensorType& type : types) {
    expected += expected.empty() ? PrintType(type) : ", " + PrintType(type);
  }
  return std::runtime_error(fmt::format("received a message of {}, but expected {} ({} bytes)",
                                        what, expected, MessageBytes(types)));
}

void FromBytes(Message message, std::span<const TensorType> types, std::span<at::Tensor> to,
               c10::Device device) {
  if (message.bytes() != MessageBytes(types))
    throw Mismatch(fmt::format("{} bytes", message.bytes()), types);
  auto* const data = static_cast<std::byte*>(message.data());
  const auto keep = std::make_shared<Message>(std::move(message));
  std::size_t end = 0;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::size_t begin = Message::Align(end);
    to[i] = at::from_blob(
        data + begin, types[i].sizes, [keep](void*) {}, at::TensorOptions().dtype(types[i].dtype));
    to[i] = to[i].to(device);
    end = begin + SizeOf(types[i]);
  }
}

// The number of tensors, then the dtype and the sizes of each.
std::string TypesOf(std::span<const at::Tensor> tensors) {
  ByteWriter types;
  types.Put(static_cast<std::uint64_t>(tensors.size()));
  for (const at::Tensor& tensor : tensors) {
    types.Put(tensor.scalar_type());
    types.PutAll(std::span<const std::int64_t>(tensor.sizes()));
  }
  return types.Take();
}

}  // namespace

std::size_t MessageBytes(std::span<const TensorType> types) {
  std::size_t end = 0;
  for (const TensorType& type : types) end = Message::Align(end) + SizeOf(type);
  return end;
}

Message ToMessage(std::span<at::Tensor> tensors) {
  const bool on_cpu = tensors.empty() || tensors[0].is_cpu();
  if (tensors.size() == 1 && on_cpu) {
    const MessagePart part = PartOf(tensors[0]);
    return Message(part.data, part.bytes, tensors[0].unsafeReleaseTensorImpl(), ReleaseOne);
  }
  auto several = std::make_unique<SeveralTensors>();
  if (!on_cpu) several->ready.emplace(tensors[0].device());
  for (at::Tensor& tensor : tensors) {
    several->parts.push_back(PartOf(tensor));
    several->tensors.push_back(std::move(tensor));
  }
  const std::span<const MessagePart> parts(several->parts.data(), several->parts.size());
  return Message(parts, several.release(), ReleaseSeveral, on_cpu ? nullptr : SeveralOnHost);
}

void AwaitMessage(Message& message, c10::Device device, PeerCopies* peers) {
  if (message.release() != ReleaseSeveral) return;
  auto* const several = static_cast<SeveralTensors*>(message.owner());
  if (!several->ready) return;
  if (several->tensors.front().device() != device) {
    PENSTOCK_CHECK(peers != nullptr, "a message from {} on {}",
                   several->tensors.front().device().str(), device.str());
    peers->Take(*several->ready, several->tensors);
  } else {
    several->ready->Await(several->tensors);
  }
  several->ready.reset();
}

void FromMessage(Message message, std::span<const TensorType> types, std::span<at::Tensor> to,
                 c10::Device device, PeerCopies* peers) {
  if (message.release() == ReleaseOne && types.size() == 1) {
    to[0] = at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim(
        static_cast<c10::TensorImpl*>(message.TakeOwner())));
    return;
  }
  if (message.release() != ReleaseOne && message.release() != ReleaseSeveral) {
    return FromBytes(std::move(message), types, to, device);
  }
  if (message.parts().size() != types.size()) {
    throw Mismatch(fmt::format("{} tensors", message.parts().size()), types);
  }
  AwaitMessage(message, device, peers);
  const std::unique_ptr<SeveralTensors> several(static_cast<SeveralTensors*>(message.TakeOwner()));
  for (std::size_t i = 0; i < types.size(); ++i) to[i] = std::move(several->tensors[i]);
}

std::span<const at::Tensor> DeviceTensors(const Message& message) {
  if (message.release() != ReleaseSeveral) return {};
  const auto* const several = static_cast<const SeveralTensors*>(message.owner());
  if (!several->ready) return {};
  return {several->tensors.data(), several->tensors.size()};
}

void AwaitTensors(const Message& message) {
  auto* const several = static_cast<SeveralTensors*>(message.owner());
  several->ready->Await(several->tensors);
}

Message TypesMessage(std::span<const at::Tensor> tensors) {
  return CopyToMessage(TypesOf(tensors));
}

std::vector<at::Tensor> EmptyTensors(const Message& types, c10::Device device) {
  const std::string text(TextOf(types));
  ByteReader reader(text);
  std::vector<at::Tensor> tensors;
  for (auto left = reader.Get<std::uint64_t>(); left > 0; --left) {
    const auto dtype = reader.Get<c10::ScalarType>();
    const std::vector<std::int64_t> sizes = reader.GetAll<std::int64_t>();
    tensors.push_back(at::empty(sizes, at::device(device).dtype(dtype)));
  }
  return tensors;
}

// Layout: the length of the types, the types, then the tensors. Message::Pack aligns each part.
Message ToTypedMessage(std::span<const at::Tensor> tensors) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : tensors) values.push_back(tensor.cpu().contiguous());
  ByteWriter head;
  head.PutText(TypesOf(values));
  std::string text = head.Take();
  std::vector<MessagePart> parts = {{text.data(), text.size()}};
  for (const at::Tensor& value : values) parts.push_back(PartOf(value));
  return Packed(Message(parts, nullptr, [](void*) {}));
}

std::vector<at::Tensor> FromTypedMessage(Message message) {
  auto* const data = static_cast<std::byte*>(message.data());
  const std::string head = ByteReader(TextOf(message)).GetText();
  std::size_t end = sizeof(std::uint64_t) + head.size();
  const auto keep = std::make_shared<Message>(std::move(message));
  std::vector<at::Tensor> tensors;
  ByteReader types(head);
  for (auto left = types.Get<std::uint64_t>(); left > 0; --left) {
    const auto dtype = types.Get<c10::ScalarType>();
    const std::vector<std::int64_t> sizes = types.GetAll<std::int64_t>();
    const std::size_t begin = Message::Align(end);
    tensors.push_back(at::from_blob(
        data + begin, sizes, [keep](void*) {}, at::TensorOptions().dtype(dtype)));
    end = begin + tensors.back().nbytes();
    PENSTOCK_CHECK(end <= keep->bytes(), "the tensors of a message end at byte {} of {}", end,
                   keep->bytes());
  }
  return tensors;
}

}  // namespace penstock
