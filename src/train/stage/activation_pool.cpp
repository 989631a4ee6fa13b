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

// All of the bytes, or the reason why not. `move` is pwrite or pread.
template <class Move, class Byte>
std::string MoveAll(Move move, int file, Byte* bytes, std::int64_t count, std::int64_t offset) {
  while (count > 0) {
    const ssize_t moved = move(file, bytes, Index(count), offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return std::strerror(errno);
    if (moved == 0) return "its end came too early";
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
    return MakeError(ErrorCode::kUnavailable,
                     "cannot make a file for offloaded activations in {}: {}; name a folder with "
                     "offload.pool",
                     folder, std::strerror(errno));
  }
  unlink(path.c_str());
  std::unique_ptr<ActivationPool> pool(new ActivationPool(file));
  pool->Start();
  return pool;
}

void ActivationPool::Start() {
  out_ = std::thread([this] { MoveOut(); });
  back_ = std::thread([this] { MoveBack(); });
}

ActivationPool::~ActivationPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  out_.join();
  back_.join();
  close(file_);
}

void ActivationPool::Offload(std::span<at::Tensor> held, std::atomic<std::int64_t>& bytes_away,
                             Parcel& parcel) {
  PENSTOCK_CHECK(parcel.empty(), "OFFLOAD of a microbatch that is away");
  std::int64_t bytes = 0;
  for (std::size_t place = 0; place < held.size(); ++place) {
    at::Tensor& tensor = held[place];
    if (!IsDense(tensor)) continue;
    const auto size = static_cast<std::int64_t>(tensor.nbytes());
    const auto sizes = tensor.sizes().vec();
    const auto strides = tensor.strides().vec();
    const c10::ScalarType dtype = tensor.scalar_type();
    parcel.contents_.push_back({place, std::move(tensor), sizes, strides, dtype, bytes, size});
    bytes += size;
  }
  if (bytes > parcel.room_) {
    parcel.offset_ = size_;
    parcel.room_ = bytes;
    size_ += bytes;
  }
  parcel.away_ = &bytes_away;
  {
    const std::lock_guard lock(mutex_);
    parcel.state_ = Parcel::State::kLeaving;
    parcel.reloads_ = false;
    leaving_.push_back(&parcel);
  }
  changed_.notify_all();
}

void ActivationPool::Reload(Parcel& parcel) {
  {
    const std::lock_guard lock(mutex_);
    parcel.reloads_ = true;
    coming_.push_back(&parcel);
  }
  changed_.notify_all();
}

void ActivationPool::Await(std::span<at::Tensor> held, Parcel& parcel) {
  if (parcel.empty()) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return parcel.state_ == Parcel::State::kBack || !error_.empty(); });
    if (!error_.empty()) {
      throw std::runtime_error(fmt::format("the file of offloaded activations: {}", error_));
    }
  }
  for (Parcel::Content& content : parcel.contents_) {
    held[content.place] = std::move(content.tensor);
  }
  parcel.contents_.clear();
}

void ActivationPool::Drop(Parcel& parcel) {
  if (parcel.empty()) return;
  std::unique_lock lock(mutex_);
  const Parcel::State last = parcel.reloads_ ? Parcel::State::kBack : Parcel::State::kAway;
  changed_.wait(lock, [&] { return !parcel.moves_ && (parcel.state_ == last || !error_.empty()); });
  std::erase(leaving_, &parcel);  // behind an error nothing is moved any more
  std::erase(coming_, &parcel);
  for (const Parcel::Content& content : parcel.contents_) {
    if (!parcel.reloads_) parcel.away_->fetch_sub(content.bytes, std::memory_order_relaxed);
  }
  parcel.contents_.clear();
}

ActivationPool::Parcel* ActivationPool::Next(std::deque<Parcel*>& queue, Parcel::State ready) {
  std::unique_lock lock(mutex_);
  // A parcel comes back once it is away; one whose reload was asked for early is waited for.
  changed_.wait(lock, [&] {
    return ending_ || (!queue.empty() && error_.empty() && queue.front()->state_ == ready);
  });
  if (ending_) return nullptr;
  Parcel* const next = queue.front();
  queue.pop_front();
  next->moves_ = true;
  return next;
}

void ActivationPool::MoveOut() {
  while (Parcel* const parcel = Next(leaving_, Parcel::State::kLeaving)) Write(*parcel);
}

void ActivationPool::MoveBack() {
  while (Parcel* const parcel = Next(coming_, Parcel::State::kAway)) Read(*parcel);
}

void ActivationPool::Write(Parcel& parcel) {
  std::string error;
  for (Parcel::Content& content : parcel.contents_) {
    const auto* bytes = static_cast<const char*>(content.tensor.const_data_ptr());
    error = MoveAll(pwrite, file_, bytes, content.bytes, parcel.offset_ + content.offset);
    if (!error.empty()) break;
    content.tensor.reset();
    parcel.away_->fetch_add(content.bytes, std::memory_order_relaxed);
  }
  Done(parcel, Parcel::State::kAway, error);
}

void ActivationPool::Read(Parcel& parcel) {
  std::string error;
  for (Parcel::Content& content : parcel.contents_) {
    parcel.away_->fetch_sub(content.bytes, std::memory_order_relaxed);
  }
  try {
    for (Parcel::Content& content : parcel.contents_) {
      content.tensor = at::detail::empty_strided_cpu(content.sizes, content.strides, content.dtype);
      auto* bytes = static_cast<char*>(content.tensor.mutable_data_ptr());
      error = MoveAll(pread, file_, bytes, content.bytes, parcel.offset_ + content.offset);
      if (!error.empty()) break;
    }
  } catch (const std::exception&) {
    error = "no memory to read it into";
  }
  Done(parcel, Parcel::State::kBack, error);
}

void ActivationPool::Done(Parcel& parcel, Parcel::State state, const std::string& error) {
  {
    const std::lock_guard lock(mutex_);
    parcel.state_ = state;
    parcel.moves_ = false;
    if (error_.empty()) error_ = error;
  }
  changed_.notify_all();
}

}  // namespace penstock
