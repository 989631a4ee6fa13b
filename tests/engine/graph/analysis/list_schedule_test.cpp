// List schedules satisfy the constraints, and are close to the optimum.
#include "graph/analysis/list_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace penstock::testing {
namespace {

std::vector<Job> RandomJobs(std::mt19937& random, int count) {
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  std::vector<Job> jobs(count);
  int last_on_link = -1;
  for (int i = 0; i < count; ++i) {
    Job& job = jobs[i];
    job.on_link = draw(3) == 0;
    job.seconds = draw(8);
    for (int before = 0; before < i; ++before) {
      if (draw(count) < 2) job.after.push_back(before);
    }
    if (job.on_link && last_on_link >= 0 && draw(2) == 0) job.after_start = {last_on_link};
    if (job.on_link) last_on_link = i;
  }
  return jobs;
}

// Simulates the steps: when each job starts and ends, and when each step starts.
struct Replay {
  std::vector<double> begin, end, step_begin;
  double seconds = 0;

  Replay(const std::vector<Job>& jobs, const std::vector<JobStep>& steps)
      : begin(jobs.size(), -1), end(jobs.size(), -1) {
    std::vector<bool> waited(jobs.size());
    double link_free = 0;
    for (const JobStep& step : steps) {
      const std::size_t i = step.job;
      step_begin.push_back(seconds);
      if (step.kind == JobStepKind::kWait) {
        EXPECT_TRUE(jobs[i].on_link && begin[i] >= 0 && !waited[i]) << "wait for " << i;
        waited[i] = true;
        seconds = std::max(seconds, end[i]);
        continue;
      }
      EXPECT_EQ(jobs[i].on_link, step.kind == JobStepKind::kStart);
      EXPECT_LT(begin[i], 0) << i << " runs twice";
      for (const int before : jobs[i].after) {
        const std::size_t b = before;
        EXPECT_GE(end[b], 0) << i << " runs before " << before;
        EXPECT_TRUE(!jobs[b].on_link || waited[b]) << i << " does not wait for " << before;
      }
      for (const int before : jobs[i].after_start) {
        EXPECT_GE(begin[before], 0) << i << " begins before " << before;
      }
      begin[i] = seconds;
      if (jobs[i].on_link) {
        end[i] = link_free = std::max(seconds, link_free) + jobs[i].seconds;
      } else {
        end[i] = seconds = seconds + jobs[i].seconds;
      }
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_GE(begin[i], 0) << i << " never runs";
      EXPECT_TRUE(!jobs[i].on_link || waited[i]) << "no step waits for " << i;
    }
  }
};

bool Needs(const Job& job, int other) {
  return std::find(job.after.begin(), job.after.end(), other) != job.after.end();
}

class ListScheduleTest : public ::testing::TestWithParam<int> {};

TEST_P(ListScheduleTest, SatisfiesConstraintsAndIsNeverLongerThanSequential) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  for (int round = 0; round < 100; ++round) {
    const std::vector<Job> jobs = RandomJobs(random, 1 + static_cast<int>(random() % 30));
    const JobOrder order = ListSchedule(jobs);
    const Replay replay(jobs, order.steps);
    ASSERT_FALSE(::testing::Test::HasFailure());
    EXPECT_DOUBLE_EQ(replay.seconds, order.seconds);
    double all = 0;
    double core = 0;
    for (const Job& job : jobs) {
      all += job.seconds;
      if (!job.on_link) core += job.seconds;
    }
    EXPECT_LE(order.seconds, all);
    EXPECT_GE(order.seconds, std::max(core, all - core));
  }
}

TEST_P(ListScheduleTest, StartsEarlyAndWaitsLate) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  for (int round = 0; round < 100; ++round) {
    const std::vector<Job> jobs = RandomJobs(random, 1 + static_cast<int>(random() % 30));
    const std::vector<JobStep> steps = ListSchedule(jobs).steps;
    const Replay replay(jobs, steps);
    double last_run = -1;  // when the last core job started
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const Job& job = jobs[steps[s].job];
      if (steps[s].kind == JobStepKind::kRun) last_run = replay.step_begin[s];
      if (steps[s].kind == JobStepKind::kStart) {
        double ready = 0;
        for (const int before : job.after) {
          ready = std::max(ready, replay.end[before]);
        }
        for (const int before : job.after_start) {
          ready = std::max(ready, replay.begin[before]);
        }
        EXPECT_TRUE(last_run < 0 || last_run <= ready) << "a core job ran before a start";
      }
      if (steps[s].kind == JobStepKind::kWait) {
        std::size_t next = s + 1;
        while (next < steps.size() && steps[next].kind == JobStepKind::kWait) ++next;
        EXPECT_TRUE(next == steps.size() || Needs(jobs[steps[next].job], steps[s].job))
            << "a wait precedes a job that does not depend on it";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ListScheduleTest, ::testing::Range(0, 5));

// Returns the shortest duration of all orders, by exhaustive search.
double Shortest(const std::vector<Job>& jobs) {
  std::vector<int> order(jobs.size());
  std::iota(order.begin(), order.end(), 0);
  double shortest = 1e9;
  do {
    std::vector<double> begin(jobs.size(), -1);
    std::vector<double> end(jobs.size(), -1);
    double now = 0;
    double link_free = 0;
    bool valid = true;
    for (const int i : order) {
      const std::size_t at = i;
      for (const int b : jobs[at].after) {
        valid = valid && end[b] >= 0;
        now = std::max(now, end[b]);
      }
      for (const int b : jobs[at].after_start) {
        valid = valid && begin[b] >= 0;
      }
      if (!valid) break;
      begin[at] = now;
      if (jobs[at].on_link) {
        end[at] = link_free = std::max(now, link_free) + jobs[at].seconds;
      } else {
        end[at] = now = now + jobs[at].seconds;
      }
    }
    if (valid) shortest = std::min(shortest, std::max(now, link_free));
  } while (std::next_permutation(order.begin(), order.end()));
  return shortest;
}

TEST(ListSchedule, IsCloseToTheShortestOfSmallProblems) {
  std::mt19937 random(7);
  double taken = 0;
  double shortest = 0;
  for (int round = 0; round < 60; ++round) {
    const std::vector<Job> jobs = RandomJobs(random, 7);
    const double own = ListSchedule(jobs).seconds;
    const double best = Shortest(jobs);
    ASSERT_GE(own, best);
    taken += own;
    shortest += best;
  }
  EXPECT_LE(taken, 1.05 * shortest);
}

// Two chains of core, link, core: the link of each overlaps with the core of the other.
TEST(ListSchedule, OverlapsLinkAndCore) {
  const std::vector<Job> jobs = {{false, 1}, {true, 1, {0}}, {false, 1, {1}},
                                 {false, 1}, {true, 1, {3}}, {false, 1, {4}}};
  const JobOrder order = ListSchedule(jobs);
  EXPECT_EQ(order.seconds, 4);
  const std::vector<JobStep> expected = {{JobStepKind::kRun, 0},  {JobStepKind::kStart, 1},
                                         {JobStepKind::kRun, 3},  {JobStepKind::kStart, 4},
                                         {JobStepKind::kWait, 1}, {JobStepKind::kRun, 2},
                                         {JobStepKind::kWait, 4}, {JobStepKind::kRun, 5}};
  EXPECT_EQ(order.steps, expected);
}

TEST(ListSchedule, IsEmptyForNoJobs) { EXPECT_TRUE(ListSchedule({}).steps.empty()); }

}  // namespace
}  // namespace penstock::testing
