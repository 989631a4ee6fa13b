#include "train/stage/activation_pool.h"

#include <ATen/EmptyTensor.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/index.h"

namespace penstock {
namespace {

// Moves all bytes with `move`, which is pwrite or pread. Returns the reason if that fails, else an
// empty string.
template <class Move, class Byte>
std::string MoveAll(Move move, int file, Byte* bytes, std::int64_t count, std::int64_t offset) {
  while (count > 0) {
    const ssize_t moved = move(file, bytes, Index(count), offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return std::strerror(errno);
    if (moved == 0) return "unexpected end of file";
    bytes += moved;
    count -= moved;
    offset += moved;
  }
  return {};
}

bool IsDense(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && tensor.is_non_overlapping_and_dense();
}

}  // namespace

Result<std::unique_ptr<ActivationPool>> ActivationPool::Make(const std::string& folder) {
  std::string path = folder + "/penstock-activations-XXXXXX";
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) {
    return MakeError(
        ErrorCode::kUnavailable,
        "cannot create a file for offloaded activations in {}: {}; set offload.pool to another "
        "folder",
        folder, std::strerror(errno));
  }
  unlink(path.c_str());
  std::unique_ptr<ActivationPool> pool(new ActivationPool(file));
  pool->Start();
  return pool;
}

void ActivationPool::Start() {
  offload_thread_ = std::thread([this] { RunOffloads(); });
  reload_thread_ = std::thread([this] { RunReloads(); });
}

ActivationPool::~ActivationPool() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  offload_thread_.join();
  reload_thread_.join();
  close(file_);
}

void ActivationPool::Offload(std::span<at::Tensor> slots,
                             std::atomic<std::int64_t>& offloaded_bytes, Transfer& transfer) {
  PENSTOCK_CHECK(transfer.empty(), "OFFLOAD of a microbatch that is already offloaded");
  std::int64_t bytes = 0;
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    at::Tensor& tensor = slots[slot];
    if (!IsDense(tensor)) continue;
    const auto size = static_cast<std::int64_t>(tensor.nbytes());
    const auto sizes = tensor.sizes().vec();
    const auto strides = tensor.strides().vec();
    const c10::ScalarType dtype = tensor.scalar_type();
    transfer.contents_.push_back({slot, std::move(tensor), sizes, strides, dtype, bytes, size});
    bytes += size;
  }
  if (bytes > transfer.room_) {
    transfer.offset_ = size_;
    transfer.room_ = bytes;
    size_ += bytes;
  }
  transfer.offloaded_bytes_ = &offloaded_bytes;
  {
    const MutexLock lock(mutex_);
    transfer.state_ = Transfer::State::kOffloading;
    transfer.reload_requested_ = false;
    offloads_.push_back(&transfer);
  }
  changed_.NotifyAll();
}

void ActivationPool::Reload(Transfer& transfer) {
  {
    const MutexLock lock(mutex_);
    transfer.reload_requested_ = true;
    reloads_.push_back(&transfer);
  }
  changed_.NotifyAll();
}

void ActivationPool::Await(std::span<at::Tensor> slots, Transfer& transfer) {
  if (transfer.empty()) return;
  {
    MutexLock lock(mutex_);
    while (transfer.state_ != Transfer::State::kInMemory && error_.empty()) changed_.Wait(lock);
    if (!error_.empty()) {
      throw std::runtime_error(
          fmt::format("cannot write or read the file of offloaded activations: {}", error_));
    }
  }
  for (Transfer::Content& content : transfer.contents_) {
    slots[content.slot] = std::move(content.tensor);
  }
  transfer.contents_.clear();
}

void ActivationPool::Drop(Transfer& transfer) {
  if (transfer.empty()) return;
  MutexLock lock(mutex_);
  const Transfer::State last =
      transfer.reload_requested_ ? Transfer::State::kInMemory : Transfer::State::kOffloaded;
  while (transfer.in_flight_ || (transfer.state_ != last && error_.empty())) changed_.Wait(lock);
  std::erase(offloads_, &transfer);  // still queued after an error
  std::erase(reloads_, &transfer);
  for (const Transfer::Content& content : transfer.contents_) {
    if (!transfer.reload_requested_) {
      transfer.offloaded_bytes_->fetch_sub(content.bytes, std::memory_order_relaxed);
    }
  }
  transfer.contents_.clear();
}

bool ActivationPool::HasNext(bool reload) {
  const std::deque<Transfer*>& queue = QueueOf(reload);
  if (queue.empty() || !error_.empty()) return false;
  // A reload waits for its own offload, even if it was requested earlier.
  return !reload || queue.front()->state_ == Transfer::State::kOffloaded;
}

ActivationPool::Transfer* ActivationPool::Next(bool reload) {
  MutexLock lock(mutex_);
  while (!ending_ && !HasNext(reload)) changed_.Wait(lock);
  if (ending_) return nullptr;
  std::deque<Transfer*>& queue = QueueOf(reload);
  Transfer* const next = queue.front();
  queue.pop_front();
  next->in_flight_ = true;
  return next;
}

void ActivationPool::RunOffloads() {
  while (Transfer* const transfer = Next(/*reload=*/false)) Write(*transfer);
}

void ActivationPool::RunReloads() {
  while (Transfer* const transfer = Next(/*reload=*/true)) Read(*transfer);
}

void ActivationPool::Write(Transfer& transfer) {
  std::string error;
  for (Transfer::Content& content : transfer.contents_) {
    const auto* bytes = static_cast<const char*>(content.tensor.const_data_ptr());
    error = MoveAll(pwrite, file_, bytes, content.bytes, transfer.offset_ + content.offset);
    if (!error.empty()) break;
    content.tensor.reset();
    transfer.offloaded_bytes_->fetch_add(content.bytes, std::memory_order_relaxed);
  }
  Done(transfer, Transfer::State::kOffloaded, error);
}

void ActivationPool::Read(Transfer& transfer) {
  std::string error;
  for (Transfer::Content& content : transfer.contents_) {
    transfer.offloaded_bytes_->fetch_sub(content.bytes, std::memory_order_relaxed);
  }
  try {
    for (Transfer::Content& content : transfer.contents_) {
      content.tensor = at::detail::empty_strided_cpu(content.sizes, content.strides, content.dtype);
      auto* bytes = static_cast<char*>(content.tensor.mutable_data_ptr());
      error = MoveAll(pread, file_, bytes, content.bytes, transfer.offset_ + content.offset);
      if (!error.empty()) break;
    }
  } catch (const std::exception&) {
    error = "out of memory";
  }
  Done(transfer, Transfer::State::kInMemory, error);
}

void ActivationPool::Done(Transfer& transfer, Transfer::State state, const std::string& error) {
  {
    const MutexLock lock(mutex_);
    transfer.state_ = state;
    transfer.in_flight_ = false;
    if (error_.empty()) error_ = error;
  }
  changed_.NotifyAll();
}

}  // namespace penstock
