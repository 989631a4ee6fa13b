// MessageMemory: memory of a device whose data can be sent to other processes as messages, without
// a copy in memory of the host. As in GroupMemory, calls only start work. Threads: any.
#pragma once

#include "collective/group_memory.h"
#include "runtime/message.h"

namespace penstock {

class MessageMemory : public GroupMemory {
 public:
  // Returns a message that owns a copy of the data, in the device's memory.
  virtual Message CopyToMessage(ConstBytes data) = 0;
  // Returns the data of a message that another process has sent. What is started afterwards waits
  // until the data is there. Keep the message until all that reads it was started.
  virtual Piece DataOf(const Message& message) = 0;
};

}  // namespace penstock
