// Converts tensors to messages between stages, and back. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "graph/ir/ir.h"
#include "runtime/message.h"

namespace penstock {

class PeerCopies;

// Returns Message::bytes of a message with tensors of these types.
std::size_t MessageBytes(std::span<const TensorType> types);

// Moves the tensors into a message. They are undefined afterwards. Does not allocate for a single
// tensor on the CPU. Tensors of a device are copied to the host for another process. Requires: the
// tensors are contiguous and on one device.
Message ToMessage(std::span<at::Tensor> tensors);

// Unpacks a message into `to`, which has one entry per type. If the message holds tensors, they may
// have any shape, and the thread's stream waits until they are computed; `peers` copies tensors of
// another device than `device`. If it holds bytes, Message::Pack laid them out for tensors of these
// types, which are copied to `device`. Throws std::runtime_error if the message does not match the
// types. Requires: peers is not null if ranks of this process are on several devices.
void FromMessage(Message message, std::span<const TensorType> types, std::span<at::Tensor> to,
                 c10::Device device = c10::kCPU, PeerCopies* peers = nullptr);

// The thread's stream waits for the tensors of a message, as in FromMessage, which then does not
// wait again. Does nothing for bytes.
void AwaitMessage(Message& message, c10::Device device, PeerCopies* peers);

// For transports that send tensors of a device without memory of the host. DeviceTensors returns
// the tensors of a message that ToMessage has made of tensors of a device, and nothing for other
// messages. The thread's stream waits until they are computed after AwaitTensors, which requires
// that there are some. TypesMessage has the types of tensors as bytes, and EmptyTensors makes
// tensors of these types. EmptyTensors throws std::runtime_error for bytes that are no types.
std::span<const at::Tensor> DeviceTensors(const Message& message);
void AwaitTensors(const Message& message);
Message TypesMessage(std::span<const at::Tensor> tensors);
std::vector<at::Tensor> EmptyTensors(const Message& types, c10::Device device);

// Messages for a receiver that does not know the types: they are part of the message's bytes.
Message ToTypedMessage(std::span<const at::Tensor> tensors);
std::vector<at::Tensor> FromTypedMessage(Message message);

}  // namespace penstock
