#include "runtime/processes/run_control.h"

namespace penstock {

RunControl::RunControl(ProcessGroup* group, const std::atomic<bool>* stop, Transport& transport)
    : gate_(stop, group == nullptr ? 0 : group->processes() - 1,
            [this](std::int64_t begun) {
              if (channel_) channel_->SendToOthers({kClosed, 0, begun});
            }),
      others_(group == nullptr ? 1 : group->processes()) {
  if (group == nullptr || group->processes() == 1) return;
  channel_ = std::make_unique<Channel>(*group);
  channel_->Open([this](int from, const FrameTag& tag,
                        const Message& message) { OnFrame(from, tag, message); },
                 [&transport](const Error& reason) { transport.Abort(reason); });
}

void RunControl::ReportProgress() {
  if (channel_) channel_->SendToOthers({kProgress, 0, 0});
}

void RunControl::ReportStandstill(const Standstill& own) {
  if (!channel_) return;
  channel_->SendToOthers({kComputing, 0, 0}, own.computing);
  channel_->SendToOthers({kWaiting, 0, 0}, own.waiting);
}

Standstill RunControl::All(const Standstill& own) const {
  Standstill all = own;
  const MutexLock lock(mutex_);
  for (const Standstill& other : others_) {
    all.computing += other.computing;
    all.waiting += other.waiting;
  }
  return all;
}

void RunControl::ReportActions(const std::string& own) {
  if (!channel_) return;
  const int to = channel_->group().process() == 0 ? 1 : 0;
  channel_->Send(to, {kActions, 0, 0}, CopyToMessage(own));
}

void RunControl::Abort(const Error& reason) {
  gate_.Cancel();
  if (channel_) channel_->group().Abort(reason);
}

void RunControl::OnFrame(int from, const FrameTag& tag, const Message& message) {
  if (tag.kind == kProgress) {
    progress_.store(true);
    return;
  }
  if (tag.kind == kClosed) return gate_.ProcessClosed(tag.number);
  if (tag.kind == kActions) {
    return channel_->group().NoteActivity(from, std::string(TextOf(message)));
  }
  const MutexLock lock(mutex_);
  Standstill& other = others_[from];
  (tag.kind == kComputing ? other.computing : other.waiting) = TextOf(message);
}

}  // namespace penstock
