// ProcessMail: bytes that the processes of a run send each other apart from the messages of steps.
//
// Threads: one at a time receives. Errors: the reason of the abort, if the group is aborted.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/result.h"
#include "runtime/processes/process_group.h"

namespace penstock::python {

class ProcessMail {
 public:
  // Every process creates its mail at the same place among its channels.
  explicit ProcessMail(ProcessGroup& group);

  // Never waits.
  void Send(int to, std::string_view bytes);
  // Waits for the next letter, in the order of arrival. Returns an empty text after `wait`.
  Result<std::string> Receive(std::chrono::milliseconds wait);

 private:
  ProcessGroup& group_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> letters_ PENSTOCK_GUARDED_BY(mutex_);
  std::unique_ptr<Channel> channel_;
};

}  // namespace penstock::python
