#include "collective/exchanger.h"

#include <algorithm>
#include <thread>

#include "base/exception_line.h"
#include "base/index.h"
#include "base/system/own_time.h"

namespace penstock {
namespace {

std::int32_t SignatureOf(const CollectiveCall& call) {
  return static_cast<std::int32_t>(call.kind) | static_cast<std::int32_t>(call.type) << 4 |
         call.root << 8;
}

CollectiveKind KindOf(std::int32_t signature) {
  return static_cast<CollectiveKind>(signature & 0xf);
}

// "all-reduce of float32", "broadcast of rank 1"
std::string NameOfSignature(std::int32_t signature) {
  const CollectiveKind kind = KindOf(signature);
  const std::string_view name = NameOf(kind);
  const auto type = static_cast<ElementType>(signature >> 4 & 0xf);
  const int root = signature >> 8;
  switch (kind) {
    case CollectiveKind::kBroadcast:
      return fmt::format("{} of rank {}", name, root);
    case CollectiveKind::kReduce:
      return fmt::format("{} of {} to rank {}", name, NameOf(type), root);
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
      return fmt::format("{} of {}", name, NameOf(type));
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kBarrier:
      break;
  }
  return std::string(name);
}

std::string NameRanks(const std::vector<int>& ranks) {
  if (ranks.empty()) return "the other ranks";
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

Exchanger::Exchanger(RankGroupOptions options, std::vector<bool> here, RemoteRanks* remote,
                     std::optional<LinkSpeed> link)
    : options_(std::move(options)),
      memory_(options_.memory ? options_.memory : std::make_shared<GroupMemory>()),
      here_(std::move(here)),
      remote_(remote),
      link_(link),
      ranks_(here_.size()) {}

Exchanger::Ticket Exchanger::Start(int rank, const CollectiveCall& call) {
  std::vector<Exchange> exchanges = ExchangesOf(call, rank, ranks());
  memory_->Begin();
  Ticket ticket = -1;
  {
    const MutexLock lock(mutex_);
    Rank& own = ranks_[Index(rank)];
    const std::int64_t first = own.next_number;
    own.next_number += std::ssize(exchanges);
    ticket = own.next_number - 1;
    own.calls.emplace(ticket, Call{call.kind, false, {}});
    if (reason_) return ticket;
    Part part;
    part.ticket = ticket;
    part.signature = SignatureOf(call);
    part.exchange = std::move(exchanges.front());
    if (exchanges.size() > 1) part.next = std::make_unique<Exchange>(std::move(exchanges.back()));
    StartExchange(rank, first, std::move(part), {});
  }
  if (remote_ != nullptr) DoTasks(rank);
  return ticket;
}

void Exchanger::StartExchange(int rank, std::int64_t number, Part started,
                              Clock::time_point not_before) {
  Part& part = ranks_[Index(rank)].parts[number];
  started.started = true;
  started.pieces = std::move(part.pieces);
  started.pieces.resize(here_.size());
  started.missing = started.exchange.count();
  part = std::move(started);
  const Clock::time_point due = TimeOnLink(rank, part.exchange, not_before);
  bool sends = false;
  for (int peer = 0; peer < ranks(); ++peer) {
    const Exchange::Peer& with = part.exchange.peers[Index(peer)];
    if (!with.exchanges) continue;
    if (!here_[Index(peer)]) {
      sends = true;
      continue;
    }
    ++part.lent;
    Post({part.signature, rank, peer, number},
         {true, true, part.signature, {with.send}, nullptr, due});
  }
  if (sends) {
    ++part.lent;
    AddTask({TaskKind::kSend, rank, number, -1, &part});
  }
  for (int peer = 0; peer < ranks(); ++peer) {
    const ReceivedPiece& piece = part.pieces[Index(peer)];
    if (piece.is_here && peer != rank) Accept({piece.signature, peer, rank, number}, part);
  }
  CompleteIfDone(rank, number);
}

Exchanger::Clock::time_point Exchanger::TimeOnLink(int rank, const Exchange& exchange,
                                                   Clock::time_point not_before) {
  if (!link_) return {};
  double bytes = 0;
  for (const Exchange::Peer& peer : exchange.peers) {
    if (peer.exchanges) bytes += static_cast<double>(peer.send.size());
  }
  const auto seconds = [](double value) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
  };
  Clock::time_point& free = ranks_[Index(rank)].link_free;
  free = std::max({free, not_before, Clock::now()}) + seconds(bytes / link_->bytes_per_second);
  return free + seconds(link_->latency);
}

void Exchanger::Post(const PieceTag& tag, ReceivedPiece piece) {
  Part& part = ranks_[Index(tag.to)].parts[tag.exchange];
  part.pieces.resize(here_.size());
  part.pieces[Index(tag.from)] = std::move(piece);
  if (part.started) Accept(tag, part);
}

void Exchanger::Accept(const PieceTag& tag, Part& part) {
  const Exchange::Peer& peer = part.exchange.peers[Index(tag.from)];
  const std::size_t bytes = part.pieces[Index(tag.from)].piece.data.size();
  if (tag.signature != part.signature) {
    return Fail({ErrorCode::kInvalidArgument,
                 fmt::format("{}: rank {} calls {}, and rank {} calls {}; all ranks must call the "
                             "same collectives in the same order",
                             Describe(tag.to, part.ticket), tag.to, NameOfSignature(part.signature),
                             tag.from, NameOfSignature(tag.signature))},
                true);
  }
  if (bytes != peer.receive.size()) {
    return Fail(
        {ErrorCode::kInvalidArgument,
         fmt::format("{}: rank {} sends {} bytes to rank {}, which expects {}",
                     Describe(tag.to, part.ticket), tag.from, bytes, tag.to, peer.receive.size())},
        true);
  }
  ++part.arrived;
  if (!part.exchange.sum) {
    AddTask({TaskKind::kReceive, tag.to, tag.exchange, tag.from, &part});
  } else if (part.arrived == part.exchange.count()) {
    AddTask({TaskKind::kSum, tag.to, tag.exchange, -1, &part});
  }
}

void Exchanger::AddTask(Task task) {
  ranks_[Index(task.rank)].tasks.push_back(task);
  WakeForTask(task.rank);
}

void Exchanger::WakeForTask(int rank) {
  const auto waiting =
      ranks_[Index(rank)].is_waiting
          ? ranks_.begin() + rank
          : std::ranges::find_if(ranks_, [](const Rank& other) { return other.is_waiting; });
  if (waiting != ranks_.end()) waiting->changed.NotifyOne();
}

void Exchanger::DoTasks(int rank) {
  for (;;) {
    std::optional<Task> task;
    {
      const MutexLock lock(mutex_);
      task = TakeTask(rank);
    }
    if (!task) return;
    try {
      Do(*task);
    } catch (const std::exception& error) {  // out of memory
      Abort({ErrorCode::kUnavailable, ExceptionLine(error)});
    }
    const MutexLock lock(mutex_);
    Finish(*task);
  }
}

int Exchanger::RankWithTask(int rank) const {
  if (reason_) return -1;
  if (rank >= 0 && !ranks_[Index(rank)].tasks.empty()) return rank;
  const auto found = std::ranges::find_if(
      ranks_, [](const Rank& other) { return !other.is_waiting && !other.tasks.empty(); });
  return found == ranks_.end() ? -1 : static_cast<int>(found - ranks_.begin());
}

std::optional<Exchanger::Task> Exchanger::TakeTask(int rank) {
  const int found = RankWithTask(rank);
  if (found < 0) return std::nullopt;
  std::deque<Task>& tasks = ranks_[Index(found)].tasks;
  const Task task = tasks.front();
  tasks.pop_front();
  ++busy_;
  return task;
}

// Without the lock: the exchange does not change, and each piece has one task.
void Exchanger::Do(const Task& task) {
  const Part& part = *task.part;
  const std::vector<Exchange::Peer>& peers = part.exchange.peers;
  if (task.kind == TaskKind::kReceive) {
    memory_->Copy(part.pieces[Index(task.from)].piece, peers[Index(task.from)].receive);
  } else if (task.kind == TaskKind::kSum) {
    std::vector<GroupMemory::Piece> pieces;
    for (const ReceivedPiece& received : part.pieces) pieces.push_back(received.piece);
    memory_->Sum(pieces, peers.front().receive, *part.exchange.sum);
  } else {
    for (int peer = 0; peer < ranks(); ++peer) {
      if (here_[Index(peer)] || !peers[Index(peer)].exchanges) continue;
      const ConstBytes data = peers[Index(peer)].send;
      std::vector<std::byte> kept;
      remote_->SendPiece({part.signature, task.rank, peer, task.number},
                         remote_->ReadsMemory() ? data : memory_->OnHost(data, kept));
    }
  }
}

void Exchanger::Finish(const Task& task) {
  --busy_;
  if (reason_) {
    if (busy_ == 0) WakeAll();
    return;
  }
  if (task.kind == TaskKind::kReceive) {
    FinishPiece(task, task.from);
  } else if (task.kind == TaskKind::kSum) {
    for (int from = 0; from < ranks(); ++from) FinishPiece(task, from);
  } else {
    --task.part->lent;
  }
  CompleteIfDone(task.rank, task.number);
}

void Exchanger::FinishPiece(const Task& task, int from) {
  Part& part = *task.part;
  ReceivedPiece& piece = part.pieces[Index(from)];
  --part.missing;
  part.due = std::max(part.due, piece.due);
  piece.owner.reset();
  if (!piece.is_lent) return;
  --ranks_[Index(from)].parts.at(task.number).lent;
  if (from != task.rank) CompleteIfDone(from, task.number);
}

void Exchanger::CompleteIfDone(int rank, std::int64_t number) {
  Rank& own = ranks_[Index(rank)];
  const auto found = own.parts.find(number);
  if (found == own.parts.end() || found->second.missing > 0 || found->second.lent > 0) return;
  const Part part = std::move(found->second);
  own.parts.erase(found);
  if (part.next) {
    Part next;
    next.ticket = part.ticket;
    next.signature = part.signature;
    next.exchange = std::move(*part.next);
    return StartExchange(rank, number + 1, std::move(next), part.due);
  }
  Call& call = own.calls.at(part.ticket);
  call.is_complete = true;
  call.due = part.due;
  own.changed.NotifyOne();
}

Status Exchanger::Wait(int rank, Ticket ticket) {
  OwnTimeLimit limit(options_.timeout);
  for (;;) {
    DoTasks(rank);
    MutexLock lock(mutex_);
    Rank& own = ranks_[Index(rank)];
    const auto call = own.calls.find(ticket);
    if (call == own.calls.end()) {
      return InvalidArgument("rank {} of group {} has no collective {} in flight", rank,
                             options_.name, ticket);
    }
    own.is_waiting = true;
    if (!reason_ && !call->second.is_complete) FailIfGone(rank, ticket);
    if (!reason_ && !call->second.is_complete && limit.IsOver()) {
      Fail({ErrorCode::kDeadlineExceeded,
            fmt::format("{}: rank {} waited {} ms for {}", Describe(rank, ticket), rank,
                        options_.timeout.count(), NameRanks(Awaited(rank, ticket)))},
           true);
    }
    if (reason_ ? busy_ == 0 : call->second.is_complete) {
      const Clock::time_point due = call->second.due;
      Status status = EndWait(own, ticket);
      lock.Unlock();
      memory_->End();
      if (status) std::this_thread::sleep_until(due);  // on an emulated link
      return status;
    }
    if (RankWithTask(rank) >= 0) continue;
    if (reason_) {
      own.changed.Wait(lock);
    } else {
      static_cast<void>(own.changed.WaitUntil(lock, limit.NextLook()));
    }
  }
}

Status Exchanger::EndWait(Rank& own, Ticket ticket) {
  const int rank = static_cast<int>(&own - ranks_.data());
  own.is_waiting = false;
  Status status;
  if (reason_) {
    status = tl::unexpected(*reason_);
    if (is_lost_) {
      status = MakeError(reason_->code, "{}: rank {} waits for {}: {}", Describe(rank, ticket),
                         rank, NameRanks(Awaited(rank, ticket)), reason_->message);
    }
  } else {
    // Another waiting rank takes over.
    for (int other = 0; other < ranks(); ++other) {
      if (!ranks_[Index(other)].tasks.empty()) WakeForTask(other);
    }
  }
  own.calls.erase(ticket);
  return status;
}

void Exchanger::FailIfGone(int rank, Ticket ticket) {
  for (const int other : Awaited(rank, ticket)) {
    if (!ranks_[Index(other)].has_left) continue;
    return Fail({ErrorCode::kUnavailable,
                 fmt::format("{}: rank {} waits for rank {}, which has left the group",
                             Describe(rank, ticket), rank, other)},
                true);
  }
}

std::vector<int> Exchanger::Awaited(int rank, Ticket ticket) const {
  std::vector<int> awaited;
  for (const auto& [number, part] : ranks_[Index(rank)].parts) {
    if (!part.started || part.ticket != ticket) continue;
    for (int peer = 0; peer < ranks(); ++peer) {
      const bool is_here = part.pieces[Index(peer)].is_here;
      if (part.exchange.peers[Index(peer)].exchanges && !is_here) awaited.push_back(peer);
    }
  }
  return awaited;
}

std::string Exchanger::Describe(int rank, Ticket ticket) const {
  const auto& calls = ranks_[Index(rank)].calls;
  const auto call = calls.find(ticket);
  return fmt::format("{} {} of group {}",
                     call == calls.end() ? "collective" : NameOf(call->second.kind), ticket,
                     options_.name);
}

void Exchanger::Fail(const Error& reason, bool notify_others) {
  if (reason_) return;
  reason_ = reason;
  if (notify_others && remote_ != nullptr) remote_->SendAbort(reason);
  WakeAll();
}

void Exchanger::WakeAll() {
  for (Rank& rank : ranks_) rank.changed.NotifyOne();
}

void Exchanger::Abort(const Error& reason) {
  const MutexLock lock(mutex_);
  Fail(reason, true);
}

void Exchanger::RemoteAbort(const Error& reason) {
  const MutexLock lock(mutex_);
  Fail(reason, false);
}

void Exchanger::Lose(const Error& reason) {
  const MutexLock lock(mutex_);
  if (reason_) return;
  is_lost_ = true;
  Fail(reason, false);
}

void Exchanger::Leave(int rank) {
  MutexLock lock(mutex_);
  Rank& own = ranks_[Index(rank)];
  own.has_left = true;
  for (const auto& [ticket, call] : own.calls) {
    if (call.is_complete) continue;
    Fail({ErrorCode::kUnavailable, fmt::format("{}: rank {} has left the group without waiting",
                                               Describe(rank, ticket), rank)},
         true);
  }
  if (remote_ != nullptr && !reason_) remote_->SendLeave(rank);
  WakeAll();
  while (reason_ && busy_ > 0) own.changed.Wait(lock);
  if (!reason_) return;
  lock.Unlock();
  memory_->Synchronize();
}

void Exchanger::RemoteLeave(int rank) {
  const MutexLock lock(mutex_);
  ranks_[Index(rank)].has_left = true;
  WakeAll();
}

void Exchanger::Arrive(const PieceTag& tag, const GroupMemory::Piece& piece,
                       std::shared_ptr<const void> owner) {
  {
    const MutexLock lock(mutex_);
    PENSTOCK_CHECK(tag.to >= 0 && tag.to < ranks() && here_[Index(tag.to)] && tag.from >= 0 &&
                       tag.from < ranks() && !here_[Index(tag.from)],
                   "a piece from rank {} to rank {}", tag.from, tag.to);
    if (reason_) return;
    Post(tag, {true, false, tag.signature, piece, std::move(owner), {}});
  }
  DoTasks(-1);
}

}  // namespace penstock
