#include "runtime/mpi/doorbell.h"

#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <new>

namespace penstock {
namespace {

// Not private to the process: the word is in shared memory.
long Futex(std::atomic<std::uint32_t>& word, int op, std::uint32_t value, const timespec* limit) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), op, value, limit, nullptr, 0);
}

// Returns a number that identifies the namespace, or 0.
std::uint64_t PidNamespace() {
  struct stat about {};
  return stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

}  // namespace

Doorbell::Doorbell(MPI_Comm processes, MPI_Comm machine) {
  if (machine == MPI_COMM_NULL) return;
  all_local_ = true;
  int size = 0;
  MPI_Comm_size(processes, &size);
  void* memory = nullptr;
  MPI_Win_allocate_shared(sizeof(Bell), 1, MPI_INFO_NULL, machine, static_cast<void*>(&memory),
                          &window_);
  own_ = new (memory) Bell{};
  own_->pid = getpid();
  own_->pid_namespace = PidNamespace();
  MPI_Barrier(machine);  // every bell is initialized before one rings
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group here = MPI_GROUP_NULL;
  MPI_Comm_group(processes, &all);
  MPI_Comm_group(machine, &here);
  for (int process = 0; process < size; ++process) {
    int local = MPI_UNDEFINED;
    MPI_Group_translate_ranks(all, 1, &process, here, &local);
    Bell* bell = nullptr;
    if (local == MPI_UNDEFINED) {
      all_local_ = false;
    } else {
      MPI_Aint bytes = 0;
      int unit = 0;
      void* base = nullptr;
      MPI_Win_shared_query(window_, local, &bytes, &unit, static_cast<void*>(&base));
      bell = static_cast<Bell*>(base);
    }
    bells_.push_back(bell);
  }
  MPI_Group_free(&all);
  MPI_Group_free(&here);
}

void Doorbell::Free() { MPI_Win_free(&window_); }

bool Doorbell::HasEnded(int process) const {
  const Bell& bell = *BellOf(process);
  if (bell.pid_namespace != own_->pid_namespace) return false;
  return kill(bell.pid, 0) != 0 && errno == ESRCH;
}

void Doorbell::Ring(Bell& bell) {
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  if (bell.sleeps.load(std::memory_order_seq_cst) == 0) return;
  Futex(bell.rings, FUTEX_WAKE, 1, nullptr);
}

void Doorbell::RingForFrame(int process) {
  Bell* const bell = BellOf(process);
  if (bell == nullptr) return;
  bell->frames.fetch_add(1, std::memory_order_seq_cst);
  if (bell->pollers.load(std::memory_order_seq_cst) == 0) Ring(*bell);
}

void Doorbell::RingOwn() { Ring(*own_); }

std::uint32_t Doorbell::frames() const { return own_->frames.load(std::memory_order_seq_cst); }

std::uint32_t Doorbell::rings() const { return own_->rings.load(std::memory_order_seq_cst); }

void Doorbell::Wait(std::uint32_t seen, std::chrono::microseconds limit) {
  own_->sleeps.store(1, std::memory_order_seq_cst);
  const timespec time{limit.count() / 1'000'000, limit.count() % 1'000'000 * 1000};
  if (rings() == seen) Futex(own_->rings, FUTEX_WAIT, seen, &time);
  own_->sleeps.store(0, std::memory_order_seq_cst);
}

}  // namespace penstock
