#include "train/checkpoint/checkpoint_writer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <pthread.h>

#include <filesystem>
#include <stdexcept>
#include <utility>

#include "base/files.h"
#include "checkpoint/checkpoint_folder.h"
#include "train/checkpoint/write_shards.h"
#include "train/guard.h"

namespace penstock {

CheckpointWriter::CheckpointWriter(CheckpointWriterOptions options)
    : options_(std::move(options)), processes_(options_.group), copies_(options_.ranks.size()) {
  {
    const MutexLock lock(mutex_);
    info_.config = options_.config;
  }
  for (const auto& rank : options_.ranks) parts_ += rank ? 1 : 0;
  if (several_processes()) {
    aborts_ = std::make_unique<Channel>(*options_.group);
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
  const std::int64_t every = options_.config.checkpoint.every;
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
  return LinkBest(options_.folder, std::exchange(best_, -1));
}

void CheckpointWriter::CopyAll(std::int64_t done, double seconds) {
  for (int rank = 0; rank < std::ssize(options_.ranks); ++rank) {
    if (!options_.ranks[rank]) continue;
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
      missing_ = parts_;
    } else {
      ++skipped_;
    }
  }
  return phase_ == Phase::kCopying && info_.step == done;
}

void CheckpointWriter::CopyPart(int rank) {
  const at::NoGradGuard no_gradients;
  const std::size_t index = rank;
  const NamedState state = options_.ranks[index]();
  NamedState& copies = copies_[index];
  if (copies.empty()) {
    copies = state;
    for (StatePiece& copy : copies) {
      copy.values =
          at::empty_like(copy.values, copy.values.options(), at::MemoryFormat::Contiguous);
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
    if (!status && several_processes()) options_.group->Abort(status.error());
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
  PENSTOCK_TRY_STATUS(
      WriteShards(processes_, CheckpointPath(options_.folder, info.step), info, own));
  if (processes_.leads()) {
    RemoveOldCheckpoints(options_.folder, info.step, options_.config.checkpoint.keep);
  }
  return {};
}

// The leader checks the run and creates the folder.
Status CheckpointWriter::Prepare() const {
  if (!processes_.leads()) return {};
  if (options_.check) PENSTOCK_TRY_STATUS(options_.check());
  std::error_code error;
  // Not its parents: if the run's folder was deleted, the checkpoint must fail.
  const bool is_new = std::filesystem::create_directory(options_.folder, error);
  if (error) {
    return InvalidArgument("cannot create the folder {}: {}", options_.folder, error.message());
  }
  if (!is_new || SyncFolderOf(options_.folder)) return {};
  return MakeError(ErrorCode::kUnavailable, "cannot write the folder of {}", options_.folder);
}

}  // namespace penstock
