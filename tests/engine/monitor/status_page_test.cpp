#include "monitor/status_page.h"

#include <gtest/gtest.h>

#include "tests/engine/monitor/make_metrics.h"

namespace penstock {
namespace {

TEST(StatusPage, ReloadsUntilTheRunHasFinished) {
  const auto metrics = MadeSteps(10, {0.1, 0.2});
  const RunSigns signs = {.has_process = true, .locked = 1, .changed = 2, .now = 3};
  const std::string running =
      StatusPage(StatusOf(MadeRun("a <b>", 20), metrics, signs), 2.5, "noon");
  EXPECT_TRUE(HasText(running, "reload every 3 s"));
  const std::string finished =
      StatusPage(StatusOf(MadeRun("a <b>", 10), metrics, signs), 2.5, "noon");
  EXPECT_FALSE(HasText(finished, "reload every"));
  for (const std::string& page : {running, finished}) {
    EXPECT_TRUE(HasText(page, "a &lt;b&gt;"));
    EXPECT_FALSE(HasText(page, "a <b>"));
    EXPECT_TRUE(HasText(page, "<polyline"));  // the loss curve
    EXPECT_TRUE(HasText(page, "200.0 ms"));
    EXPECT_TRUE(HasText(page, "Written at noon"));
    EXPECT_FALSE(HasText(page, "://"));  // needs no network
  }
}

TEST(StatusPage, ExistsBeforeTheFirstStep) {
  RunStatus status;
  status.folder = "runs/a";
  EXPECT_TRUE(HasText(StatusPage(status, 0.1, "noon"), "waiting for a run in runs/a"));
  EXPECT_TRUE(HasText(StatusPage(status, 0.1, "noon"), "reload every 1 s"));
}

}  // namespace
}  // namespace penstock
