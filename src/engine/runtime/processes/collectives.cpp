#include "runtime/processes/collectives.h"

#include <bit>
#include <chrono>
#include <limits>
#include <utility>

#include "base/byte_stream.h"

namespace penstock {
namespace {

std::int64_t SteadyNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Collectives::Collectives(ProcessGroup* group) : group_(group), received_(processes()) {
  if (group == nullptr || group->processes() == 1) return;
  channel_ = std::make_unique<Channel>(*group);
  channel_->Open(
      [this](int from, const FrameTag&, const Message& message) {
        {
          const MutexLock lock(mutex_);
          received_[from].emplace_back(TextOf(message));
        }
        changed_.NotifyOne();
      },
      [this](const Error&) {
        const MutexLock lock(mutex_);  // no waiter is between its check and its wait
        changed_.NotifyOne();
      });
}

Result<std::string> Collectives::Receive(int from) {
  MutexLock lock(mutex_);
  std::deque<std::string>& frames = received_[from];
  while (frames.empty() && !group_->aborted()) changed_.Wait(lock);
  // A frame that arrived before the abort counts: its sender may have finished already.
  if (frames.empty()) return tl::unexpected(group_->reason());
  std::string frame = std::move(frames.front());
  frames.pop_front();
  return frame;
}

Result<std::vector<std::string>> Collectives::AllGather(std::string own) {
  if (channel_) channel_->SendToOthers({}, own);
  std::vector<std::string> all(processes());
  for (int from = 0; from < processes(); ++from) {
    if (from == process()) continue;
    PENSTOCK_TRY(all[from], Receive(from));
  }
  all[process()] = std::move(own);
  return all;
}

Result<std::vector<std::string>> Collectives::ToLeader(std::string own) {
  std::vector<std::string> all;
  if (!leads()) {
    channel_->Send(0, {}, CopyToMessage(own));
    return all;
  }
  all.push_back(std::move(own));
  for (int from = 1; from < processes(); ++from) {
    PENSTOCK_TRY(all.emplace_back(), Receive(from));
  }
  return all;
}

Result<std::string> Collectives::FromLeader(std::string own) {
  if (!leads()) return Receive(0);
  if (channel_) channel_->SendToOthers({}, own);
  return own;
}

Result<double> Collectives::FromLeader(double own) {
  PENSTOCK_TRY(const std::string bits,
               FromLeader(std::to_string(std::bit_cast<std::uint64_t>(own))));
  return std::bit_cast<double>(std::stoull(bits));
}

Result<bool> Collectives::Any(bool own) {
  if (!channel_) return own;
  PENSTOCK_TRY(const std::vector<std::string> all, AllGather(own ? "1" : "0"));
  for (const std::string& one : all) {
    if (one == "1") return true;
  }
  return false;
}

Result<ClockOffset> Collectives::MeasureClock() {
  constexpr int kRoundTrips = 8;
  ClockOffset offset;
  if (!channel_) return offset;
  if (leads()) {
    for (int trip = 0; trip < kRoundTrips * (processes() - 1); ++trip) {
      const int to = 1 + trip / kRoundTrips;
      PENSTOCK_TRY_STATUS(Receive(to));
      channel_->Send(to, {}, CopyToMessage(std::to_string(SteadyNow())));
    }
    return offset;
  }
  offset.error = std::numeric_limits<std::int64_t>::max();
  for (int trip = 0; trip < kRoundTrips; ++trip) {
    const std::int64_t sent = SteadyNow();
    channel_->Send(0, {}, CopyToMessage({}));
    PENSTOCK_TRY(const std::string leaders, Receive(0));
    const std::int64_t one_way = (SteadyNow() - sent + 1) / 2;
    if (one_way < offset.error) offset = {std::stoll(leaders) - sent - one_way, one_way};
  }
  return offset;
}

Status Collectives::All(const Status& own) {
  if (!channel_) return own;
  ByteWriter writer;
  if (!own) {
    writer.Put(own.error().code);
    writer.PutText(own.error().line());
  }
  PENSTOCK_TRY(const std::vector<std::string> all, AllGather(writer.Take()));
  for (int from = 0; from < processes(); ++from) {
    if (all[from].empty()) continue;
    ByteReader reader(all[from]);
    Error error;
    error.code = reader.Get<ErrorCode>();
    error.message = fmt::format("{}: {}", group_->NameOf(from), reader.GetText());
    return tl::unexpected(std::move(error));
  }
  return {};
}

}  // namespace penstock
