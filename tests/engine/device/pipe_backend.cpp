#include "tests/engine/device/pipe_backend.h"

#include <ATen/ops/empty_like.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace penstock::testing {
namespace {

constexpr const char* kPath = "path";  // the key of the store

int OpenToRead(c10d::Store& store) {
  std::string folder = "/tmp/penstock-pipe-XXXXXX";
  TORCH_CHECK(mkdtemp(folder.data()) != nullptr);
  const std::string path = folder + "/pipe";
  TORCH_CHECK(mkfifo(path.c_str(), S_IRUSR | S_IWUSR) == 0);
  store.set(kPath, std::vector<std::uint8_t>(path.begin(), path.end()));
  const int pipe = open(path.c_str(), O_RDONLY | O_CLOEXEC);  // waits for the sender
  unlink(path.c_str());
  rmdir(folder.c_str());
  return pipe;
}

int OpenToWrite(c10d::Store& store) {
  const std::vector<std::uint8_t> path = store.get(kPath);
  return open(std::string(path.begin(), path.end()).c_str(), O_WRONLY | O_CLOEXEC);
}

// Moves all bytes by calls of read or write.
template <class Call, class Byte>
void MoveAll(Call call, int pipe, Byte* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t moved = call(pipe, data, bytes);
    TORCH_CHECK(moved > 0, "the pipe is broken");
    data += moved;
    bytes -= static_cast<std::size_t>(moved);
  }
}

class PipeWork final : public c10d::Work {
 public:
  // `to` is undefined for a send.
  PipeWork(c10::intrusive_ptr<c10d::Store> store, int& pipe, at::Tensor to)
      : store_(std::move(store)), pipe_(pipe), to_(std::move(to)) {}

  bool isCompleted() override { return !to_.defined(); }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    if (isCompleted()) return true;
    if (pipe_ < 0) pipe_ = OpenToRead(*store_);
    const at::Tensor read = at::empty_like(to_, at::kCPU);
    MoveAll(::read, pipe_, static_cast<std::byte*>(read.mutable_data_ptr()), read.nbytes());
    to_.copy_(read);
    to_.reset();
    return true;
  }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  int& pipe_;
  at::Tensor to_;
};

}  // namespace

PipeBackend::~PipeBackend() {
  if (pipe_ >= 0) close(pipe_);
}

c10::intrusive_ptr<c10d::Work> PipeBackend::send(std::vector<at::Tensor>& tensors, int /*to*/,
                                                 int /*tag*/) {
  if (pipe_ < 0) pipe_ = OpenToWrite(*store_);
  const at::Tensor tensor = tensors.front().cpu();
  MoveAll(::write, pipe_, static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes());
  return c10::make_intrusive<PipeWork>(store_, pipe_, at::Tensor());
}

c10::intrusive_ptr<c10d::Work> PipeBackend::recv(std::vector<at::Tensor>& tensors, int /*from*/,
                                                 int /*tag*/) {
  return c10::make_intrusive<PipeWork>(store_, pipe_, tensors.front());
}

}  // namespace penstock::testing
