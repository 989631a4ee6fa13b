#include "train/run/checkpoint_writer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <pthread.h>

#include <filesystem>
#include <stdexcept>
#include <utility>

#include "base/files.h"
#include "base/index.h"
#include "checkpoint/checkpoint_folder.h"
#include "train/checkpoint/write_shards.h"
#include "train/guard.h"

namespace penstock {

CheckpointWriter::CheckpointWriter(const RunContext& run,
                                   std::shared_ptr<const SampleSource> samples, StateOf state_of)
    : run_(run),
      samples_(std::move(samples)),
      state_of_(std::move(state_of)),
      folder_(CheckpointFolder(run.path())),
      processes_(run.processes.group()),
      copies_(Index(run.ranks.ranks())) {
  {
    const MutexLock lock(mutex_);
    info_.config = run.config;
  }
  if (several_processes()) {
    aborts_ = std::make_unique<Channel>(*processes_.group());
    aborts_->Open([](int, const FrameTag&, const Message&) {},
                  [this](const Error& reason) {
                    const MutexLock lock(mutex_);
                    if (failure_) failure_ = tl::unexpected(reason);
                    changed_.NotifyAll();
                  });
  }
  thread_ = std::thread([this] { WriteSnapshots(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void CheckpointWriter::AfterStep(int rank, std::int64_t done, double seconds) {
  const std::int64_t every = run_.config.checkpoint.every;
  if (every == 0 || done % every != 0 || !Join(done, seconds)) return;
  CopyPart(rank);
  Arrive();
}

Status CheckpointWriter::Finish(std::int64_t done, double seconds) {
  {
    MutexLock lock(mutex_);
    while (phase_ != Phase::kIdle) changed_.Wait(lock);
    if (!failure_ || written_ == done) return failure_;
    newest_ = done - 1;
  }
  CopyAll(done, seconds);
  MutexLock lock(mutex_);
  while (phase_ != Phase::kIdle) changed_.Wait(lock);
  return failure_;
}

Status CheckpointWriter::KeepBest(std::int64_t done, double seconds) {
  {
    const MutexLock lock(mutex_);
    best_ = done;
    if (written_ == done) return LinkIfBest();
    if (newest_ == done && phase_ != Phase::kIdle) return failure_;  // it is being written
    newest_ = std::min(newest_, done - 1);
  }
  CopyAll(done, seconds);
  const MutexLock lock(mutex_);
  return failure_;
}

Status CheckpointWriter::LinkIfBest() {
  if (best_ < 0 || best_ != written_ || !processes_.leads()) return {};
  return LinkBest(folder_, std::exchange(best_, -1));
}

void CheckpointWriter::CopyAll(std::int64_t done, double seconds) {
  for (const int rank : run_.ranks.here()) {
    Join(done, seconds);
    CopyPart(rank);
    Arrive();
  }
}

int CheckpointWriter::skipped() {
  const MutexLock lock(mutex_);
  return skipped_;
}

bool CheckpointWriter::MustWait(std::int64_t done) const {
  if (phase_ == Phase::kIdle || done <= newest_ || !failure_) return false;
  return phase_ == Phase::kWriting || several_processes();
}

bool CheckpointWriter::Join(std::int64_t done, double seconds) {
  MutexLock lock(mutex_);
  while (MustWait(done)) changed_.Wait(lock);
  if (!failure_) throw std::runtime_error(failure_.error().line());
  if (done > newest_) {
    newest_ = done;
    if (phase_ == Phase::kIdle) {
      phase_ = Phase::kCopying;
      info_.step = done;
      info_.seconds = seconds;
      info_.data = samples_->ConsumedAfter(done);
      missing_ = static_cast<int>(run_.ranks.here().size());
    } else {
      ++skipped_;
    }
  }
  return phase_ == Phase::kCopying && info_.step == done;
}

void CheckpointWriter::CopyPart(int rank) {
  const at::NoGradGuard no_gradients;
  const NamedState state = state_of_(rank);
  NamedState& copies = copies_[Index(rank)];
  if (copies.empty()) {
    copies = state;
    for (StatePiece& copy : copies) {
      copy.values = at::empty_like(copy.values, copy.values.options().device(at::kCPU),
                                   at::MemoryFormat::Contiguous);
    }
  }
  for (std::size_t i = 0; i < state.size(); ++i) copies[i].values.copy_(state[i].values);
}

void CheckpointWriter::Arrive() {
  const MutexLock lock(mutex_);
  if (--missing_ > 0) return;
  phase_ = Phase::kWriting;
  changed_.NotifyAll();
}

void CheckpointWriter::WriteSnapshots() {
  pthread_setname_np(pthread_self(), "checkpoints");
  MutexLock lock(mutex_);
  for (;;) {
    while (!stop_ && phase_ != Phase::kWriting) changed_.Wait(lock);
    if (phase_ != Phase::kWriting) return;
    const CheckpointInfo info = info_;
    lock.Unlock();
    Status status = FailedRun(Guard<void>([&] { return Write(info); }));
    if (!status && several_processes()) processes_.group()->Abort(status.error());
    lock.Lock();
    if (status) {
      written_ = info.step;
      status = FailedRun(LinkIfBest());
    }
    if (failure_) failure_ = std::move(status);  // else the group was aborted while writing
    phase_ = Phase::kIdle;
    changed_.NotifyAll();
  }
}

Status CheckpointWriter::Write(const CheckpointInfo& info) {
  PENSTOCK_TRY_STATUS(processes_.All(Prepare()));
  NamedState own;
  for (const NamedState& part : copies_) own.insert(own.end(), part.begin(), part.end());
  PENSTOCK_TRY_STATUS(WriteShards(processes_, CheckpointPath(folder_, info.step), info, own));
  if (processes_.leads()) {
    RemoveOldCheckpoints(folder_, info.step, run_.config.checkpoint.keep);
  }
  return {};
}

// The leader checks the run and creates the folder.
Status CheckpointWriter::Prepare() const {
  if (!processes_.leads()) return {};
  if (run_.folder != nullptr) PENSTOCK_TRY_STATUS(run_.folder->Check());
  std::error_code error;
  // Not its parents: if the run's folder was deleted, the checkpoint must fail.
  const bool is_new = std::filesystem::create_directory(folder_, error);
  if (error) {
    return InvalidArgument("cannot create the folder {}: {}", folder_, error.message());
  }
  if (!is_new || SyncFolderOf(folder_)) return {};
  return MakeError(ErrorCode::kUnavailable, "cannot write the folder of {}", folder_);
}

}  // namespace penstock
