#include "runtime/mpi/mpi_transfers.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "runtime/mpi/mpi_frames.h"

namespace penstock {
namespace {

// Throws std::runtime_error unless the result of a call of MPI is success.
void CheckMpi(int result, int other) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw std::runtime_error(
      fmt::format("a transfer between this process and process {} failed: {}", other, text.data()));
}

class MpiTransfer final : public DirectTransfers::Transfer {
 public:
  MpiTransfer(const MpiTransfers::Group& group, int other) : group_(group), other_(other) {
    group_.add_pending(1);
  }
  // What is not done yet belongs to a run that fails, or to a process that has ended.
  ~MpiTransfer() override {
    const CallWatch::Call call(group_.watch);
    for (MPI_Request& request : requests_) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
    group_.add_pending(-1);
  }
  MpiTransfer(const MpiTransfer&) = delete;
  MpiTransfer& operator=(const MpiTransfer&) = delete;

  // `begin` is MPI_Isend or MPI_Irecv of bytes.
  template <class Byte, class Begin>
  void Start(std::span<Byte> data, Begin begin) {
    const CallWatch::Call call(group_.watch);
    for (std::size_t done = 0; done < data.size(); done += kMostInOnePiece) {
      const std::size_t bytes = std::min(kMostInOnePiece, data.size() - done);
      MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
      CheckMpi(begin(data.data() + done, static_cast<int>(bytes), MPI_BYTE, other_, group_.tag,
                     group_.communicator, &request),
               other_);
    }
  }

  bool IsDone() override {
    const bool had_ended = group_.has_ended(other_);
    const CallWatch::Call call(group_.watch);
    int done = 0;
    CheckMpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                         MPI_STATUSES_IGNORE),
             other_);
    if (done == 0 && had_ended) {
      throw std::runtime_error(fmt::format("process {} ended during a transfer", other_));
    }
    return done != 0;
  }

 private:
  const MpiTransfers::Group& group_;
  const int other_;
  std::vector<MPI_Request> requests_;
};

// Calls a function of MPI's extensions that returns whether it supports a kind of device, if this
// MPI has it.
bool Supports(const char* function) {
  const auto query = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, function));
  return query != nullptr && query() == 1;
}

// MPICH's function for the same. The kinds are CUDA, Level Zero and HIP.
bool SupportsKind(int kind) {
  const auto query =
      reinterpret_cast<int (*)(int, int*)>(dlsym(RTLD_DEFAULT, "MPIX_GPU_query_support"));
  int is_supported = 0;
  return query != nullptr && query(kind, &is_supported) == MPI_SUCCESS && is_supported != 0;
}

}  // namespace

Status CheckAccessesDevices() {
  constexpr int kKinds = 3;
  for (const char* const function :
       {"MPIX_Query_cuda_support", "MPIX_Query_rocm_support", "MPIX_Query_ze_support"}) {
    if (Supports(function)) return {};
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    if (SupportsKind(kind)) return {};
  }
  return MakeError(ErrorCode::kUnavailable,
                   "this MPI cannot access memory of devices: use one that is built for CUDA or "
                   "ROCm, or another transport");
}

std::unique_ptr<DirectTransfers::Transfer> MpiTransfers::Send(int to,
                                                              std::span<const std::byte> data) {
  auto transfer = std::make_unique<MpiTransfer>(group_, to);
  transfer->Start(data, MPI_Isend);
  return transfer;
}

std::unique_ptr<DirectTransfers::Transfer> MpiTransfers::Receive(int from,
                                                                 std::span<std::byte> data) {
  auto transfer = std::make_unique<MpiTransfer>(group_, from);
  transfer->Start(data, MPI_Irecv);
  return transfer;
}

}  // namespace penstock
