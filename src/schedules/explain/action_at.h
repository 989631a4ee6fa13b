// A reference to an action of a schedule.
#pragma once

namespace penstock {

struct ActionAt {
  int rank = -1;
  int position = -1;  // in the rank's lane

  bool known() const { return rank >= 0; }
  friend bool operator==(const ActionAt&, const ActionAt&) = default;
};

}  // namespace penstock
