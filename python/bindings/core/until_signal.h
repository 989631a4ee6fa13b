// Long calls that Ctrl-C ends.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "bindings/core/binding.h"

namespace penstock::python {

// Calls work(stop) on another thread. Once Python has a signal, sets `stop`, waits for the end and
// raises what the signal does, such as KeyboardInterrupt. Throws what `work` threw. Threads: the
// caller does not hold the GIL.
template <class Work>
void UntilSignal(const Work& work) {
  std::atomic<bool> stop{false}, done{false};
  std::exception_ptr thrown;
  std::thread worker([&] {
    try {
      work(stop);
    } catch (...) {
      thrown = std::current_exception();
    }
    done = true;
  });
  while (!done) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const nb::gil_scoped_acquire acquire;
    if (!stop && PyErr_CheckSignals() != 0) stop = true;
  }
  worker.join();
  if (stop) {
    const nb::gil_scoped_acquire acquire;
    throw nb::python_error();
  }
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace penstock::python
