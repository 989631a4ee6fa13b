#include "runtime/hosts/host_group.h"

#include <exception>
#include <utility>

#include "base/exception_line.h"

namespace penstock {
namespace {

constexpr std::int64_t kGroupChannel = 0;  // the group's own frames
enum : std::int32_t { kAbort, kLeave };

}  // namespace

struct HostGroup::End {
  enum class State { kMade, kOpen, kClosed };  // changed with both mutexes held

  std::mutex frames;  // held while on_frame runs
  std::mutex aborts;  // held while on_abort runs; on_frame may abort the group
  State state = State::kMade;
  std::vector<Frame> early;  // before it is open
  Channel::OnFrame on_frame;
  Channel::OnAbort on_abort;  // empty once it was called
};

void HostGroup::Abort(const Error& reason) {
  const FrameTag tag{kAbort, static_cast<std::int32_t>(reason.code), 0};
  const std::string text = reason.message;
  if (aborted()) return;
  AbortHere(reason);
  for (int host = 0; host < hosts(); ++host) {
    if (host != host_) SendFrame(host, kGroupChannel, tag, CopyToMessage(text));
  }
}

void HostGroup::AbortHere(const Error& reason) {
  std::vector<std::shared_ptr<End>> ends;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (has_reason_) return;
    has_reason_ = true;
    reason_ = reason;
    for (const auto& [number, end] : ends_) ends.push_back(end);
    aborted_.store(true, std::memory_order_seq_cst);
  }
  for (const auto& end : ends) NotifyOfAbort(*end, reason);
}

void HostGroup::NotifyOfAbort(End& end, const Error& reason) {
  const std::lock_guard<std::mutex> lock(end.aborts);
  if (end.state != End::State::kOpen || !end.on_abort) return;
  std::exchange(end.on_abort, nullptr)(reason);
}

Error HostGroup::reason() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return reason_;
}

void HostGroup::Leave() {
  for (int host = 0; host < hosts(); ++host) {
    if (host != host_) SendFrame(host, kGroupChannel, {kLeave, 0, 0}, CopyToMessage({}));
  }
}

void HostGroup::Deliver(int from, std::int64_t channel, const FrameTag& tag, Message message) {
  std::shared_ptr<End> end;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
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
  if (!end) return;  // this host has closed its end
  const std::lock_guard<std::mutex> lock(end->frames);
  if (end->state == End::State::kMade) {
    end->early.push_back({from, tag, std::move(message)});
  } else if (end->state == End::State::kOpen) {
    Handle(*end, {from, tag, std::move(message)});
  }
}

// Requires end.frames.
void HostGroup::Handle(End& end, Frame frame) {
  try {
    end.on_frame(frame.from, frame.tag, std::move(frame.message));
  } catch (const InternalError& error) {
    Abort({ErrorCode::kInternal, ExceptionLine(error)});
  } catch (const std::exception& error) {
    Abort({ErrorCode::kUnavailable, ExceptionLine(error)});
  }
}

void HostGroup::Lose(int host) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (left_[host]) return;
  }
  // Each of the others finds out by itself.
  AbortHere(
      {ErrorCode::kUnavailable,
       fmt::format("host {} is gone: its process has ended or its connection is broken", host)});
}

Channel::Channel(HostGroup& group) : group_(group), end_(std::make_shared<HostGroup::End>()) {
  const std::lock_guard<std::mutex> lock(group_.mutex_);
  number_ = group_.next_channel_++;
  group_.ends_.emplace(number_, end_);
  if (auto found = group_.early_.extract(number_)) end_->early = std::move(found.mapped());
}

Channel::~Channel() {
  {
    const std::lock_guard<std::mutex> lock(group_.mutex_);
    group_.ends_.erase(number_);
  }
  const std::scoped_lock lock(end_->frames, end_->aborts);
  end_->state = HostGroup::End::State::kClosed;
}

void Channel::Open(OnFrame on_frame, OnAbort on_abort) {
  {
    // Held until the early frames are delivered, so that no later one overtakes them.
    const std::lock_guard<std::mutex> in_order(end_->frames);
    {
      const std::lock_guard<std::mutex> lock(end_->aborts);
      end_->state = HostGroup::End::State::kOpen;
      end_->on_frame = std::move(on_frame);
      end_->on_abort = std::move(on_abort);
    }
    for (HostGroup::Frame& frame : end_->early) group_.Handle(*end_, std::move(frame));
    end_->early.clear();
  }
  if (group_.aborted()) group_.NotifyOfAbort(*end_, group_.reason());
}

void Channel::Send(int to, const FrameTag& tag, Message message) {
  PENSTOCK_CHECK(to != group_.host() && to >= 0 && to < group_.hosts(), "a frame to host {}", to);
  group_.SendFrame(to, number_, tag, std::move(message));
}

void Channel::SendToOthers(const FrameTag& tag, std::string_view bytes) {
  for (int host = 0; host < group_.hosts(); ++host) {
    if (host != group_.host()) Send(host, tag, CopyToMessage(bytes));
  }
}

}  // namespace penstock
