#include "train/offload/file_pool.h"

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

}  // namespace

Result<std::unique_ptr<FilePool>> FilePool::Make(const std::string& folder) {
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
  std::unique_ptr<FilePool> pool(new FilePool(file));
  pool->Start();
  return pool;
}

void FilePool::Start() {
  offload_thread_ = std::thread([this] { RunOffloads(); });
  reload_thread_ = std::thread([this] { RunReloads(); });
}

FilePool::~FilePool() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  offload_thread_.join();
  reload_thread_.join();
  close(file_);
}

void FilePool::Offload(std::span<at::Tensor> slots, std::atomic<std::int64_t>& offloaded_bytes,
                       Transfer& of) {
  if (!of.moved) of.moved = std::make_unique<InFile>();
  auto& transfer = static_cast<InFile&>(*of.moved);
  PENSTOCK_CHECK(transfer.empty(), "OFFLOAD of a microbatch that is already offloaded");
  std::int64_t bytes = 0;
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    at::Tensor& tensor = slots[slot];
    if (!IsOffloaded(tensor)) continue;
    const auto size = static_cast<std::int64_t>(tensor.nbytes());
    const auto sizes = tensor.sizes().vec();
    const auto strides = tensor.strides().vec();
    const c10::ScalarType dtype = tensor.scalar_type();
    transfer.contents.push_back({slot, std::move(tensor), sizes, strides, dtype, bytes, size});
    bytes += size;
  }
  if (bytes > transfer.room) {
    transfer.offset = size_;
    transfer.room = bytes;
    size_ += bytes;
  }
  transfer.offloaded_bytes = &offloaded_bytes;
  {
    const MutexLock lock(mutex_);
    transfer.state = InFile::State::kOffloading;
    transfer.reload_requested = false;
    offloads_.push_back(&transfer);
  }
  changed_.NotifyAll();
}

void FilePool::Reload(Transfer& of) {
  auto& transfer = static_cast<InFile&>(*of.moved);
  {
    const MutexLock lock(mutex_);
    transfer.reload_requested = true;
    reloads_.push_back(&transfer);
  }
  changed_.NotifyAll();
}

void FilePool::Await(std::span<at::Tensor> slots, Transfer& of) {
  if (of.empty()) return;
  auto& transfer = static_cast<InFile&>(*of.moved);
  {
    MutexLock lock(mutex_);
    while (transfer.state != InFile::State::kInMemory && error_.empty()) changed_.Wait(lock);
    if (!error_.empty()) {
      throw std::runtime_error(
          fmt::format("cannot write or read the file of offloaded activations: {}", error_));
    }
  }
  for (InFile::Content& content : transfer.contents) {
    slots[content.slot] = std::move(content.tensor);
  }
  transfer.contents.clear();
}

void FilePool::Drop(Transfer& of) {
  if (of.empty()) return;
  auto& transfer = static_cast<InFile&>(*of.moved);
  MutexLock lock(mutex_);
  const InFile::State last =
      transfer.reload_requested ? InFile::State::kInMemory : InFile::State::kOffloaded;
  while (transfer.in_flight || (transfer.state != last && error_.empty())) changed_.Wait(lock);
  std::erase(offloads_, &transfer);  // still queued after an error
  std::erase(reloads_, &transfer);
  for (const InFile::Content& content : transfer.contents) {
    if (!transfer.reload_requested) {
      transfer.offloaded_bytes->fetch_sub(content.bytes, std::memory_order_relaxed);
    }
  }
  transfer.contents.clear();
}

bool FilePool::HasNext(bool reload) {
  const std::deque<InFile*>& queue = QueueOf(reload);
  if (queue.empty() || !error_.empty()) return false;
  // A reload waits for its own offload, even if it was requested earlier.
  return !reload || queue.front()->state == InFile::State::kOffloaded;
}

FilePool::InFile* FilePool::Next(bool reload) {
  MutexLock lock(mutex_);
  while (!ending_ && !HasNext(reload)) changed_.Wait(lock);
  if (ending_) return nullptr;
  std::deque<InFile*>& queue = QueueOf(reload);
  InFile* const next = queue.front();
  queue.pop_front();
  next->in_flight = true;
  return next;
}

void FilePool::RunOffloads() {
  while (InFile* const transfer = Next(/*reload=*/false)) Write(*transfer);
}

void FilePool::RunReloads() {
  while (InFile* const transfer = Next(/*reload=*/true)) Read(*transfer);
}

void FilePool::Write(InFile& transfer) {
  std::string error;
  for (InFile::Content& content : transfer.contents) {
    const auto* bytes = static_cast<const char*>(content.tensor.const_data_ptr());
    error = MoveAll(pwrite, file_, bytes, content.bytes, transfer.offset + content.offset);
    if (!error.empty()) break;
    content.tensor.reset();
    transfer.offloaded_bytes->fetch_add(content.bytes, std::memory_order_relaxed);
  }
  Done(transfer, InFile::State::kOffloaded, error);
}

void FilePool::Read(InFile& transfer) {
  std::string error;
  for (InFile::Content& content : transfer.contents) {
    transfer.offloaded_bytes->fetch_sub(content.bytes, std::memory_order_relaxed);
  }
  try {
    for (InFile::Content& content : transfer.contents) {
      content.tensor = at::detail::empty_strided_cpu(content.sizes, content.strides, content.dtype);
      auto* bytes = static_cast<char*>(content.tensor.mutable_data_ptr());
      error = MoveAll(pread, file_, bytes, content.bytes, transfer.offset + content.offset);
      if (!error.empty()) break;
    }
  } catch (const std::exception&) {
    error = "out of memory";
  }
  Done(transfer, InFile::State::kInMemory, error);
}

void FilePool::Done(InFile& transfer, InFile::State state, const std::string& error) {
  {
    const MutexLock lock(mutex_);
    transfer.state = state;
    transfer.in_flight = false;
    if (error_.empty()) error_ = error;
  }
  changed_.NotifyAll();
}

}  // namespace penstock
