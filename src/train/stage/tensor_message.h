// Converts the tensors that one stage sends to another to a message and back. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "graph/ir/ir.h"
#include "runtime/message.h"

namespace penstock {

// Moves the tensors into a message; they are undefined afterwards. Does not allocate for a single
// tensor. Requires: they are contiguous.
Message ToMessage(std::span<at::Tensor> tensors);

// Unpacks a message. If it came by reference, returns the sender's own tensors, of any shape;
// otherwise its bytes, laid out by Message::Pack for tensors of these types. `to` has one entry per
// type. Throws std::runtime_error if the message does not match the types.
void FromMessage(Message message, std::span<const TensorType> types, std::span<at::Tensor> to);

// Tensors with their types, in bytes of one message, for a receiver that does not know them.
Message ToTypedMessage(std::span<const at::Tensor> tensors);
std::vector<at::Tensor> FromTypedMessage(Message message);

}  // namespace penstock
