#include "base/system/machine_name.h"

#include <unistd.h>

#include <array>

namespace penstock {

std::string MachineName() {
  std::array<char, 256> name{};  // one more than the longest name and its end
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : kUnknownMachine;
}

}  // namespace penstock
