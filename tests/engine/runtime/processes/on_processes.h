// Emulates the processes of one run, each by a thread of this process.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "runtime/processes/process_group.h"
#include "tests/engine/runtime/processes/local_processes.h"

namespace penstock {

// Calls function(group) for every process on its own thread and joins the threads.
template <class Function>
void OnEachProcess(const std::vector<std::unique_ptr<ProcessGroup>>& groups, Function&& function) {
  std::vector<std::thread> threads;
  for (const auto& group : groups) threads.emplace_back([&function, &group] { function(*group); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace penstock
