// Runs the hosts of one run, each on its own thread of this process.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "runtime/hosts/host_group.h"
#include "runtime/hosts/local_hosts.h"

namespace penstock {

// Calls function(group) for every host on its own thread and joins the threads.
template <class Function>
void OnEachHost(const std::vector<std::unique_ptr<HostGroup>>& groups, Function&& function) {
  std::vector<std::thread> threads;
  for (const auto& group : groups) threads.emplace_back([&function, &group] { function(*group); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace penstock
