#include "runtime/processes/process_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/exception_line.h"

namespace penstock {
namespace {

constexpr std::int64_t kGroupChannel = 0;  // the group's own frames
enum : std::int32_t { kAbort, kLeave };

}  // namespace

struct ProcessGroup::End {
  enum class State { kCreated, kOpen, kClosed };

  explicit End(std::vector<Frame> frames) : early(std::move(frames)) {}

  void Handle(ProcessGroup& group, Frame frame) PENSTOCK_REQUIRES(frames);
  void NotifyOfAbort(const Error& reason);

  // Lock `frames` before `aborts`.
  Mutex frames;  // held while on_frame runs
  State state PENSTOCK_GUARDED_BY(frames) = State::kCreated;
  std::vector<Frame> early PENSTOCK_GUARDED_BY(frames);  // arrived before Open
  Channel::OnFrame on_frame PENSTOCK_GUARDED_BY(frames);
  Mutex aborts;  // held while on_abort runs; a separate mutex, because on_frame may abort the group
  Channel::OnAbort on_abort PENSTOCK_GUARDED_BY(aborts);  // empty unless open, and after its call
};

void ProcessGroup::Abort(const Error& reason) {
  const FrameTag tag{kAbort, static_cast<std::int32_t>(reason.code), 0};
  const std::string text = reason.line();
  if (aborted()) return;
  // Sent before threads of this process end: the process may exit then, and the others would only
  // see that it is gone.
  for (int process = 0; process < processes(); ++process) {
    if (process != process_ && process != lost())
      SendFrame(process, kGroupChannel, tag, CopyToMessage(text));
  }
  AbortHere(reason);
}

void ProcessGroup::AbortHere(const Error& reason) {
  std::vector<std::shared_ptr<End>> ends;
  {
    const MutexLock lock(mutex_);
    if (has_reason_) return;
    has_reason_ = true;
    reason_ = reason;
    for (const auto& [number, end] : ends_) ends.push_back(end);
    aborted_.store(true, std::memory_order_seq_cst);
  }
  for (const auto& end : ends) end->NotifyOfAbort(reason);
}

void ProcessGroup::End::NotifyOfAbort(const Error& reason) {
  const MutexLock lock(aborts);
  if (on_abort) std::exchange(on_abort, nullptr)(reason);
}

Error ProcessGroup::reason() const {
  const MutexLock lock(mutex_);
  return reason_;
}

void ProcessGroup::Leave() {
  for (int process = 0; process < processes(); ++process) {
    if (process != process_) SendFrame(process, kGroupChannel, {kLeave, 0, 0}, CopyToMessage({}));
  }
}

void ProcessGroup::Deliver(int from, std::int64_t channel, const FrameTag& tag, Message message) {
  std::shared_ptr<End> end;
  {
    const MutexLock lock(mutex_);
    if (channel == kGroupChannel && tag.kind == kLeave) {
      left_[from] = true;
      return;
    }
    if (channel >= next_channel_) {
      early_[channel].push_back({from, tag, std::move(message)});
      return;
    }
    const auto found = ends_.find(channel);
    if (found != ends_.end()) end = found->second;
  }
  if (channel == kGroupChannel) {
    return AbortHere({static_cast<ErrorCode>(tag.index), std::string(TextOf(message))});
  }
  if (!end) return;  // this process has closed its end
  const MutexLock lock(end->frames);
  if (end->state == End::State::kCreated) {
    end->early.push_back({from, tag, std::move(message)});
  } else if (end->state == End::State::kOpen) {
    end->Handle(*this, {from, tag, std::move(message)});
  }
}

void ProcessGroup::End::Handle(ProcessGroup& group, Frame frame) {
  try {
    on_frame(frame.from, frame.tag, std::move(frame.message));
  } catch (const InternalError& error) {
    group.Abort({ErrorCode::kInternal, ExceptionLine(error)});
  } catch (const std::exception& error) {
    group.Abort({ErrorCode::kUnavailable, ExceptionLine(error)});
  }
}

void ProcessGroup::Lose(int process, std::string_view why) {
  if (HasLeft(process)) return;
  int none = -1;
  lost_.compare_exchange_strong(none, process);
  if (aborted()) return;
  std::string message = fmt::format("{} is gone: {}", NameOf(process), why);
  {
    const MutexLock lock(mutex_);
    const std::string& activity = activities_[process];
    if (!activity.empty()) message += fmt::format("; it last reported: {}", activity);
  }
  Abort({ErrorCode::kUnavailable, std::move(message)});
}

void ProcessGroup::NoteActivity(int process, std::string activity) {
  const MutexLock lock(mutex_);
  activities_[process] = std::move(activity);
}

Result<DirectTransfers*> ProcessGroup::FindDirectTransfers() {
  return MakeError(ErrorCode::kUnavailable, "the processes are not connected by MPI");
}

std::string ProcessGroup::NameOf(int process) const {
  const std::size_t index = process;
  const int number = index < numbers_.size() ? numbers_[index] : process;
  if (index >= machines_.size() || machines_[index].empty())
    return fmt::format("process {}", number);
  return fmt::format("process {} on {}", number, machines_[index]);
}

bool ProcessGroup::HasLeft(int process) const {
  const MutexLock lock(mutex_);
  return left_[process];
}

bool ProcessGroup::OthersHaveLeft() const {
  const MutexLock lock(mutex_);
  return std::ranges::count(left_, true) == processes_ - 1;
}

std::pair<std::int64_t, std::shared_ptr<ProcessGroup::End>> ProcessGroup::AddEnd() {
  const MutexLock lock(mutex_);
  const std::int64_t channel = next_channel_++;
  auto early = early_.extract(channel);
  auto end = std::make_shared<End>(early ? std::move(early.mapped()) : std::vector<Frame>());
  ends_.emplace(channel, end);
  return {channel, std::move(end)};
}

void ProcessGroup::RemoveEnd(std::int64_t channel) {
  const MutexLock lock(mutex_);
  ends_.erase(channel);
}

Channel::Channel(ProcessGroup& group) : Channel(group, group.AddEnd()) {}

Channel::Channel(ProcessGroup& group,
                 std::pair<std::int64_t, std::shared_ptr<ProcessGroup::End>> end)
    : group_(group), number_(end.first), end_(std::move(end.second)) {}

Channel::~Channel() {
  group_.RemoveEnd(number_);
  const MutexLock frames(end_->frames);
  const MutexLock aborts(end_->aborts);
  end_->state = ProcessGroup::End::State::kClosed;
  end_->on_abort = nullptr;
}

void Channel::Open(OnFrame on_frame, OnAbort on_abort) {
  {
    // Held until the early frames are delivered, so that no later one overtakes them.
    const MutexLock in_order(end_->frames);
    end_->state = ProcessGroup::End::State::kOpen;
    end_->on_frame = std::move(on_frame);
    {
      const MutexLock lock(end_->aborts);
      end_->on_abort = std::move(on_abort);
    }
    for (ProcessGroup::Frame& frame : end_->early) end_->Handle(group_, std::move(frame));
    end_->early.clear();
  }
  if (group_.aborted()) end_->NotifyOfAbort(group_.reason());
}

void Channel::Send(int to, const FrameTag& tag, Message message) {
  PENSTOCK_CHECK(to != group_.process() && to >= 0 && to < group_.processes(),
                 "a frame to process {}", to);
  group_.SendFrame(to, number_, tag, std::move(message));
}

void Channel::SendToOthers(const FrameTag& tag, std::string_view bytes) {
  for (int process = 0; process < group_.processes(); ++process) {
    if (process != group_.process()) Send(process, tag, CopyToMessage(bytes));
  }
}

}  // namespace penstock
