#include "bindings/engine/process_mail.h"

#include <utility>

namespace penstock::python {

ProcessMail::ProcessMail(ProcessGroup& group)
    : group_(group), channel_(std::make_unique<Channel>(group)) {
  channel_->Open(
      [this](int, const FrameTag&, const Message& message) {
        {
          const MutexLock lock(mutex_);
          letters_.emplace_back(TextOf(message));
        }
        changed_.NotifyOne();
      },
      [this](const Error&) {
        const MutexLock lock(mutex_);  // no receiver is between its check and its wait
        changed_.NotifyOne();
      });
}

void ProcessMail::Send(int to, std::string_view bytes) {
  channel_->Send(to, {}, CopyToMessage(bytes));
}

Result<std::string> ProcessMail::Receive(std::chrono::milliseconds wait) {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  MutexLock lock(mutex_);
  while (letters_.empty() && !group_.aborted() && changed_.WaitUntil(lock, deadline)) {
  }
  if (!letters_.empty()) {
    std::string letter = std::move(letters_.front());
    letters_.pop_front();
    return letter;
  }
  if (group_.aborted()) return tl::unexpected(group_.reason());
  return std::string();
}

}  // namespace penstock::python
