#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/system/cores.h"

namespace penstock {

// Calls work(i) for every i below `count`, on all cores or on so many threads. Throws what a call
// threw, once all have ended.
template <class Work>
void OnAllCores(std::size_t count, const Work& work, int threads = Cores()) {
#ifdef __wasm__
  static_cast<void>(threads);
  for (std::size_t i = 0; i < count; ++i) work(i);
#else
  std::atomic<std::size_t> next{0};
  Mutex mutex;
  std::exception_ptr thrown;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const MutexLock lock(mutex);
      thrown = std::current_exception();
      next = count;
    }
  };
  std::vector<std::thread> others;
  const std::size_t wanted = std::min(count, static_cast<std::size_t>(threads));
  for (std::size_t i = 1; i < wanted; ++i) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
  if (thrown) std::rethrow_exception(thrown);
#endif
}

}  // namespace penstock
