#include "monitor/follow_metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "base/index.h"
#include "monitor/file_time.h"

namespace penstock {

void MetricsFollower::Read() {
  const int descriptor = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat status {};
  if (descriptor < 0 || fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    StartOver();
    device_ = inode_ = 0;
    changed_ = 0;
  } else {
    if (status.st_dev != device_ || status.st_ino != inode_ || status.st_size < offset_) {
      StartOver();
      device_ = status.st_dev;
      inode_ = status.st_ino;
    }
    changed_ = ChangeTime(status);
    ReadFrom(descriptor);
  }
  if (descriptor >= 0) close(descriptor);
}

void MetricsFollower::StartOver() {
  offset_ = 0;
  partial_.clear();
  metrics_.clear();
}

void MetricsFollower::ReadFrom(int descriptor) {
  std::array<char, 1 << 16> block;
  ssize_t got = 0;
  while ((got = pread(descriptor, block.data(), block.size(), offset_)) > 0) {
    offset_ += got;
    partial_.append(block.data(), Index(got));
    std::size_t begin = 0;
    for (std::size_t end; (end = partial_.find('\n', begin)) != std::string::npos;) {
      AddLine(std::string_view(partial_).substr(begin, end - begin));
      begin = end + 1;
    }
    partial_.erase(0, begin);
  }
}

void MetricsFollower::AddLine(std::string_view line) {
  if (auto metric = ParseMetric(line)) metrics_.push_back(*std::move(metric));
}

}  // namespace penstock
