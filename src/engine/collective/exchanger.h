// Exchanger: carries out the collectives of the ranks of a group that run in this process.
//
// A rank's collective is one or two exchanges, which all ranks number alike. In an exchange, a rank
// posts a piece for each other rank: a reference to its own memory for a rank of this process, a
// copy for a rank of another one. Each received piece, each sum and each send to other processes is
// a task. A start only posts, so that it returns at once. A rank that waits does its own tasks and
// the tasks of ranks that do not wait, so data moves while other ranks compute, and no order of
// waits can deadlock. If the group has ranks in other processes, which cannot help, starts and
// arrivals do the tasks of ranks that do not wait.
//
// Thread-safe, except that one thread at a time acts for a rank.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/link_speed.h"
#include "base/mutex.h"
#include "collective/exchange.h"
#include "collective/group_memory.h"

namespace penstock {

struct RankGroupOptions {
  std::string name = "ranks";  // for errors
  // How long a wait takes at most while this process runs, for ranks that do not start the same
  // collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  std::shared_ptr<GroupMemory> memory = nullptr;  // null: the host's
};

// Identifies a piece.
struct PieceTag {
  std::int32_t signature = 0;  // what the sender calls: kind, element type and root
  int from = 0;
  int to = 0;
  std::int64_t exchange = 0;  // number
};

// Reaches the ranks of a group that run in other processes. The functions never wait, and never
// call the exchanger.
class RemoteRanks {
 public:
  virtual ~RemoteRanks() = default;
  // Whether SendPiece reads the group's memory. Otherwise it gets data on the host.
  virtual bool ReadsMemory() const { return false; }
  // Sends a copy of `data` to the Arrive of the receiver's exchanger.
  virtual void SendPiece(const PieceTag& tag, ConstBytes data) = 0;
  // Notify the exchangers of all other processes: RemoteAbort, RemoteLeave.
  virtual void SendAbort(const Error& reason) = 0;
  virtual void SendLeave(int rank) = 0;
};

class Exchanger {
 public:
  using Ticket = RankGroup::Ticket;
  using Clock = std::chrono::steady_clock;

  // `here` has an element per rank of the group: whether it runs in this process. `remote` may be
  // null if all do, and must outlive the exchanger.
  Exchanger(RankGroupOptions options, std::vector<bool> here, RemoteRanks* remote,
            std::optional<LinkSpeed> link = std::nullopt);

  int ranks() const { return static_cast<int>(here_.size()); }

  // Start and wait for a call of a rank of this process, as in RankGroup.
  Ticket Start(int rank, const CollectiveCall& call);
  Status Wait(int rank, Ticket ticket);
  void Abort(const Error& reason);
  // The rank starts nothing more. Aborts the group if the rank has collectives in flight.
  void Leave(int rank);

  // Called for the ranks of other processes. `owner` keeps the data valid.
  void Arrive(const PieceTag& tag, const GroupMemory::Piece& piece,
              std::shared_ptr<const void> owner);
  void RemoteAbort(const Error& reason);
  void RemoteLeave(int rank);
  // Aborts the group, because the run has ended elsewhere or a process is lost. Each wait adds to
  // the reason what it waits for.
  void Lose(const Error& reason);

 private:
  struct ReceivedPiece {
    bool is_here = false;  // has arrived
    bool is_lent = false;  // is memory of a rank of this process
    std::int32_t signature = 0;
    GroupMemory::Piece piece;
    std::shared_ptr<const void> owner;  // null if lent
    Clock::time_point due;              // on an emulated link
  };
  // A rank's part in an exchange, from the start or the first arrival until it is complete.
  struct Part {
    bool started = false;
    Ticket ticket = -1;
    std::int32_t signature = 0;
    Exchange exchange;
    std::unique_ptr<Exchange> next;     // starts after this one
    std::vector<ReceivedPiece> pieces;  // by sender
    int arrived = 0;                    // pieces of this exchange
    int missing = 0;                    // pieces that are not received or added yet
    int lent = 0;                       // own pieces that are still read
    Clock::time_point due;              // of the pieces received so far
  };
  enum class TaskKind { kReceive, kSum, kSend };
  struct Task {
    TaskKind kind;
    int rank;
    std::int64_t number;  // of the exchange
    int from;             // of a piece to receive
    Part* part;           // stays valid until the task is finished
  };
  // A started collective of a rank that has not been waited for.
  struct Call {
    CollectiveKind kind;
    bool is_complete = false;
    Clock::time_point due;
  };
  struct Rank {
    std::int64_t next_number = 0;
    std::map<Ticket, Call> calls;
    std::map<std::int64_t, Part> parts;  // by number of the exchange
    std::deque<Task> tasks;
    bool is_waiting = false;
    bool has_left = false;
    CondVar changed;
    Clock::time_point link_free;
  };

  void StartExchange(int rank, std::int64_t number, Part started, Clock::time_point not_before)
      PENSTOCK_REQUIRES(mutex_);
  Clock::time_point TimeOnLink(int rank, const Exchange& exchange, Clock::time_point not_before)
      PENSTOCK_REQUIRES(mutex_);
  void Post(const PieceTag& tag, ReceivedPiece piece) PENSTOCK_REQUIRES(mutex_);
  // Adds the task of a piece that has arrived for a started exchange.
  void Accept(const PieceTag& tag, Part& part) PENSTOCK_REQUIRES(mutex_);
  void AddTask(Task task) PENSTOCK_REQUIRES(mutex_);
  void CompleteIfDone(int rank, std::int64_t number) PENSTOCK_REQUIRES(mutex_);

  // Does all tasks that the thread of `rank` may do; -1 for a thread of no rank.
  void DoTasks(int rank);
  std::optional<Task> TakeTask(int rank) PENSTOCK_REQUIRES(mutex_);
  // Returns the rank whose task the thread of `rank` does next, or -1.
  int RankWithTask(int rank) const PENSTOCK_REQUIRES(mutex_);
  void Do(const Task& task);
  void Finish(const Task& task) PENSTOCK_REQUIRES(mutex_);
  void FinishPiece(const Task& task, int from) PENSTOCK_REQUIRES(mutex_);
  // Wakes a thread that may do the tasks of `rank`.
  void WakeForTask(int rank) PENSTOCK_REQUIRES(mutex_);

  Status EndWait(Rank& own, Ticket ticket) PENSTOCK_REQUIRES(mutex_);
  void FailIfGone(int rank, Ticket ticket) PENSTOCK_REQUIRES(mutex_);
  void Fail(const Error& reason, bool notify_others) PENSTOCK_REQUIRES(mutex_);
  void WakeAll() PENSTOCK_REQUIRES(mutex_);
  // Return the ranks that the rank's collective waits for, and "all-gather 3 of group 'x'".
  std::vector<int> Awaited(int rank, Ticket ticket) const PENSTOCK_REQUIRES(mutex_);
  std::string Describe(int rank, Ticket ticket) const PENSTOCK_REQUIRES(mutex_);

  const RankGroupOptions options_;
  const std::shared_ptr<GroupMemory> memory_;
  const std::vector<bool> here_;  // by rank
  RemoteRanks* const remote_;
  const std::optional<LinkSpeed> link_;
  Mutex mutex_;
  std::vector<Rank> ranks_ PENSTOCK_GUARDED_BY(mutex_);
  int busy_ PENSTOCK_GUARDED_BY(mutex_) = 0;  // tasks that are being done
  std::optional<Error> reason_ PENSTOCK_GUARDED_BY(mutex_);
  bool is_lost_ PENSTOCK_GUARDED_BY(mutex_) = false;  // the reason is from Lose
};

// Returns the end of a rank of this process.
std::unique_ptr<RankGroup> MakeGroupEnd(std::shared_ptr<Exchanger> exchanger, int rank);

}  // namespace penstock
