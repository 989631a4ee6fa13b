#include "cli/output/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace penstock {

bool OutputHasColor() {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0') &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::size_t OutputColumns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string TableText(const Table& table) {
  return FormatTable(table, OutputHasColor() ? TableStyle::kTerminal : TableStyle::kPlain,
                     OutputColumns());
}

}  // namespace penstock
