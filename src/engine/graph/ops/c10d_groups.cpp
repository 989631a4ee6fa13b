#include "graph/ops/c10d_groups.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>
#include <vector>

#include "base/exception_line.h"
#include "base/index.h"

namespace penstock {
namespace {

constexpr std::int64_t kFirstNumber = 1000;
// A process that ends closes its connections before others know why.
constexpr std::chrono::seconds kForReason{2};
constexpr std::chrono::hours kForWork{24 * 365};

struct Names {
  Mutex mutex;
  std::vector<std::string> of_groups PENSTOCK_GUARDED_BY(mutex);  // by number
  std::map<std::pair<std::string, int>, std::string> clones PENSTOCK_GUARDED_BY(mutex);
};
Names& KnownNames() {
  static Names names;
  return names;
}

thread_local int local_rank = 0;
thread_local std::shared_ptr<C10dRun> local_run;

}  // namespace

std::int64_t NumberOfC10dGroup(const std::string& name) {
  static_cast<void>(c10d::resolve_process_group(name));
  Names& names = KnownNames();
  const MutexLock lock(names.mutex);
  const auto found = std::ranges::find(names.of_groups, name);
  const std::int64_t number = kFirstNumber + (found - names.of_groups.begin());
  if (found == names.of_groups.end()) names.of_groups.push_back(name);
  return number;
}

std::string NameOfC10dGroup(std::int64_t number) {
  Names& names = KnownNames();
  const MutexLock lock(names.mutex);
  return names.of_groups.at(Index(number - kFirstNumber));
}

void SetC10dClone(const std::string& group, int rank, const std::string& clone) {
  Names& names = KnownNames();
  const MutexLock lock(names.mutex);
  names.clones[{group, rank}] = clone;
}

void JoinC10dRun(int rank, std::shared_ptr<C10dRun> run) {
  local_rank = rank;
  local_run = std::move(run);
}

C10dMember C10dMember::Of(std::int64_t number) {
  std::string name = NameOfC10dGroup(number);
  {
    Names& names = KnownNames();
    const MutexLock lock(names.mutex);
    const auto clone = names.clones.find({name, local_rank});
    if (clone != names.clones.end()) name = clone->second;
  }
  return {c10d::resolve_process_group(name), local_run};
}

void C10dRun::Abort(const Error& reason) {
  {
    const MutexLock lock(state_->mutex);
    if (state_->reason) return;
    state_->reason = reason;
    state_->changed.NotifyAll();
  }
  if (on_abort_) on_abort_(reason);
}

std::optional<Error> C10dRun::WaitFor(const bool& done,
                                      std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(state_->mutex);
  while (!done && !state_->reason && state_->changed.WaitUntil(lock, deadline)) {
  }
  return state_->reason;
}

void C10dRun::Wait(const c10::intrusive_ptr<c10d::Work>& work) {
  const auto done = std::make_shared<bool>(work->isCompleted());
  if (!*done) {
    // c10d's own wait cannot be ended from outside.
    work->getFuture()->addCallback([state = state_, done](c10::ivalue::Future&) {
      const MutexLock lock(state->mutex);
      *done = true;
      state->changed.NotifyAll();
    });
    const auto reason = WaitFor(*done, std::chrono::steady_clock::now() + kForWork);
    if (reason) throw std::runtime_error(reason->line());
  }
  try {
    work->wait();
  } catch (const std::exception& error) {
    const bool never = false;
    const auto reason = WaitFor(never, std::chrono::steady_clock::now() + kForReason);
    throw std::runtime_error(reason ? reason->line()
                                    : "a collective failed: " + ExceptionLine(error));
  }
}

}  // namespace penstock
