#include "base/exception_line.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace penstock {
namespace {

TEST(ExceptionLine, IsTheFirstLine) {
  EXPECT_EQ(ExceptionLine(std::runtime_error("a fault\nException raised from f at x.cpp:3")),
            "a fault");
}

TEST(ExceptionLine, DescribesAFailedAllocation) {
  EXPECT_EQ(ExceptionLine(std::bad_alloc()),
            "out of memory; use a smaller model, batch or sequence, or a schedule that needs less "
            "memory");
  EXPECT_EQ(
      ExceptionLine(std::runtime_error(
          "[enforce fail at alloc_cpu.cpp:127] data. DefaultCPUAllocator: not enough memory: "
          "you tried to allocate 3221225472 bytes. Error code 12 (Cannot allocate memory)\n")),
      "out of memory: cannot allocate 3.00 GiB more; use a smaller model, batch or sequence, or a "
      "schedule that needs less memory");
}

}  // namespace
}  // namespace penstock
