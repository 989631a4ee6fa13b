#include "runtime/mpi/local_job.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace penstock {
namespace {

void Set(const std::string& name, const std::string& value) {
  if (value.empty()) {
    unsetenv(name.c_str());
  } else {
    setenv(name.c_str(), value.c_str(), 1);
  }
}

TEST(LocalJobTest, KnowsJobsOfOneMachine) {
  using Variables = std::map<std::string, std::string>;
  for (const auto& [variables, expected] : std::vector<std::pair<Variables, bool>>{
           {{}, true},
           {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}, true},
           {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}, false},
           {{{"OMPI_COMM_WORLD_SIZE", "4"}}, false},
           {{{"PMIX_RANK", "0"}}, false},
           {{{"PMI_RANK", "0"}}, false},
           {{{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_NODES", "1"}}, true},
           {{{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_NODES", "2"}}, false}}) {
    for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                   "PMIX_RANK", "PMI_RANK", "SLURM_STEP_NUM_NODES"}) {
      const auto found = variables.find(name);
      Set(name, found != variables.end() ? found->second : "");
    }
    EXPECT_EQ(IsJobOfOneMachine(), expected) << testing::PrintToString(variables);
    for (const auto& [name, value] : variables) Set(name, "");
  }
}

}  // namespace
}  // namespace penstock
