// The tensors that one stage sends another, as a message. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "graph/ir/ir.h"
#include "runtime/message.h"

namespace penstock {

// Hands the tensors themselves over; they are undefined after. Allocates nothing for one tensor.
// Requires: they are contiguous.
Message ToMessage(std::span<at::Tensor> tensors);

// The tensors that a message carries: the sender's own, of any shape, where it came by reference;
// else its bytes, as Message::Pack lays them out for tensors of these types. `to` has as many
// places as there are types. Throws where the message does not hold what is due.
void FromMessage(Message message, std::span<const TensorType> types, std::span<at::Tensor> to);

// Tensors with their types, in bytes of one message, for a receiver that does not know them.
Message ToTypedMessage(std::span<const at::Tensor> tensors);
std::vector<at::Tensor> FromTypedMessage(Message message);

}  // namespace penstock
