#include "runtime/message.h"

#include <algorithm>
#include <new>

namespace penstock {
namespace {

constexpr std::align_val_t kAlignment{Message::kAlign};

}  // namespace

Message AllocateMessage(std::size_t bytes) {
  void* const data = ::operator new(std::max<std::size_t>(bytes, 1), kAlignment);
  return Message(data, bytes, data, [](void* owner) { ::operator delete(owner, kAlignment); });
}

Message Packed(const Message& message) {
  Message packed = AllocateMessage(message.bytes());
  message.Pack(static_cast<std::byte*>(packed.data()));
  return packed;
}

Message CopyToMessage(std::string_view text) {
  Message message = AllocateMessage(text.size());
  std::copy(text.begin(), text.end(), static_cast<char*>(message.data()));
  return message;
}

std::string_view TextOf(const Message& message) {
  return {static_cast<const char*>(message.data()), message.bytes()};
}

}  // namespace penstock
