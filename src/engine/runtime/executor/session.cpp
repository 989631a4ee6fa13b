#include "runtime/executor/session.h"

#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "runtime/executor/step_queue.h"
#include "runtime/processes/local_ranks.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterruptPoll{50};  // how often to call `interrupted`

int RanksHere(const Schedule& schedule, const RunOptions& options) {
  return options.ranks == nullptr ? schedule.ranks() * options.planes
                                  : static_cast<int>(options.ranks->here().size());
}

}  // namespace

struct RunSession::State {
  State(const Schedule& run, std::vector<Stage*> run_stages, RunOptions run_options)
      : stages(std::move(run_stages)),
        options(std::move(run_options)),
        queue(RanksHere(run, options)) {
    options.steps = std::numeric_limits<std::int64_t>::max();
    options.cancel = &cancel;
    options.stop = nullptr;
    options.rounds_run = nullptr;
    options.queue = &queue;
    thread = std::thread([this, &run] {
      result = RunRanks(run, stages, options);
      queue.Close();
    });
  }

  const std::vector<Stage*> stages;
  RunOptions options;
  StepQueue queue;
  std::atomic<bool> cancel{false};
  Status result;  // of the thread; read after it has ended
  std::thread thread;
};

RunSession::RunSession(const Schedule& schedule, std::vector<Stage*> stages, RunOptions options)
    : state_(std::make_unique<State>(schedule, std::move(stages), std::move(options))) {}

RunSession::~RunSession() {
  state_->queue.Close();
  if (state_->thread.joinable()) state_->thread.join();
}

void RunSession::Begin(std::int64_t steps) { state_->queue.Request(steps); }

Status RunSession::End(const std::function<bool()>& interrupted) {
  State& state = *state_;
  while (!state.queue.WaitUntil(Clock::now() + kInterruptPoll)) {
    if (interrupted && !state.cancel && interrupted()) state.cancel = true;
  }
  if (!state.queue.closed()) return {};
  if (state.thread.joinable()) state.thread.join();
  if (!state.result) return state.result;
  return tl::unexpected(Error{ErrorCode::kUnavailable, std::string(kSessionEnded)});
}

}  // namespace penstock
