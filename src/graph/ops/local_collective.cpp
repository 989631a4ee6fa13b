#include "graph/ops/local_collective.h"

#include <algorithm>
#include <map>
#include <thread>

#include "base/index.h"
#include "base/mutex.h"
#include "base/result.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// One collective: the data of each rank, and when it arrives.
struct Round {
  std::vector<std::vector<std::byte>> sent;
  std::vector<Clock::time_point> arrives;
  int started = 0;   // number of ranks that started it
  int finished = 0;  // number of ranks that copied their result
};

// The state that the ranks of a group share.
struct Board {
  Board(int ranks_in, LinkSpeed speed_in, std::chrono::milliseconds timeout_in)
      : ranks(ranks_in), speed(speed_in), timeout(timeout_in) {}

  const int ranks;
  const LinkSpeed speed;
  const std::chrono::milliseconds timeout;
  Mutex mutex;
  CondVar posted;
  std::map<std::int64_t, Round> rounds PENSTOCK_GUARDED_BY(mutex);  // by number
};

class LocalEndpoint final : public Collective {
 public:
  LocalEndpoint(std::shared_ptr<Board> board, int rank) : board_(std::move(board)), rank_(rank) {}

  int ranks() const override { return board_->ranks; }

  std::int64_t StartAllToAll(std::span<const std::byte> data) override {
    const std::int64_t number = next_++;
    // A copy, because another rank may read its block after the wait of this rank.
    std::vector<std::byte> sent(data.begin(), data.end());
    const MutexLock lock(board_->mutex);
    Round& round = board_->rounds[number];
    round.sent.resize(board_->ranks);
    round.arrives.resize(round.sent.size());
    round.sent[rank_] = std::move(sent);
    round.arrives[rank_] = Send(static_cast<double>(data.size()));
    if (++round.started == board_->ranks) board_->posted.NotifyAll();
    return number;
  }

  void Wait(std::int64_t number, std::span<std::byte> result) override {
    MutexLock lock(board_->mutex);
    const auto found = board_->rounds.find(number);
    if (found == board_->rounds.end()) {
      throw std::runtime_error(
          fmt::format("all_to_all {} was not started or is already complete", number));
    }
    Round& round = found->second;
    const Clock::time_point deadline = Clock::now() + board_->timeout;
    bool in_time = true;
    while (round.started < board_->ranks && in_time) {
      in_time = board_->posted.WaitUntil(lock, deadline);
    }
    if (round.started < board_->ranks) {
      throw std::runtime_error(
          fmt::format("all_to_all {}: rank {} waited {} ms for the other ranks of the group",
                      number, rank_, board_->timeout.count()));
    }
    const auto arrived = *std::max_element(round.arrives.begin(), round.arrives.end());
    lock.Unlock();
    std::this_thread::sleep_until(arrived);
    const std::size_t block = result.size() / round.sent.size();
    for (std::size_t from = 0; from < round.sent.size(); ++from) {
      PENSTOCK_CHECK(round.sent[from].size() == result.size(),
                     "all_to_all: ranks sent {} and {} bytes", round.sent[from].size(),
                     result.size());
      const std::byte* const begin = round.sent[from].data() + Index(rank_) * block;
      std::copy_n(begin, block, result.data() + from * block);
    }
    lock.Lock();
    if (++round.finished == board_->ranks) board_->rounds.erase(number);
  }

 private:
  // Returns the arrival time of a message that is sent now.
  Clock::time_point Send(double bytes) {
    const auto seconds = [](double value) {
      return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
    };
    link_free_ =
        std::max(link_free_, Clock::now()) + seconds(bytes / board_->speed.bytes_per_second);
    return link_free_ + seconds(board_->speed.latency);
  }

  std::shared_ptr<Board> board_;
  int rank_;
  std::int64_t next_ = 0;
  Clock::time_point link_free_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> MakeLocalGroup(int ranks, LinkSpeed speed,
                                                        std::chrono::milliseconds timeout) {
  PENSTOCK_CHECK(ranks >= 1, "a group of {} ranks", ranks);
  const auto board = std::make_shared<Board>(ranks, speed, timeout);
  std::vector<std::unique_ptr<Collective>> endpoints;
  for (int rank = 0; rank < ranks; ++rank)
    endpoints.push_back(std::make_unique<LocalEndpoint>(board, rank));
  return endpoints;
}

}  // namespace penstock
