// Loaded before MPI, this makes it an MPI that accesses memory of the test device, as one that is
// built for CUDA accesses memory of GPUs: at once, without regard to what its streams still do.

#include <mpi.h>

#include "tests/engine/device/runtime.h"

namespace {

void* Accessible(const void* address) {
  using penstock::testing::Device;
  const Device& device = Device::Get();
  return device.Contains(address) ? device.Shadow(address) : const_cast<void*>(address);
}

}  // namespace

extern "C" {

int MPIX_Query_cuda_support() { return 1; }

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag,
              MPI_Comm communicator, MPI_Request* request) {
  return PMPI_Isend(Accessible(data), count, type, to, tag, communicator, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm communicator,
              MPI_Request* request) {
  return PMPI_Irecv(Accessible(data), count, type, from, tag, communicator, request);
}

}  // extern "C"
