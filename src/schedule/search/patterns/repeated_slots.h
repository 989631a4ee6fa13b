// A rank's slots of one period, which repeats for every microbatch: where an action fits so that
// the same action of every microbatch finds its place free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace penstock {

class RepeatedSlots {
 public:
  // `slots` of a period, of which `long_actions` pairs of neighbours must find room in the end.
  RepeatedSlots(int slots, int long_actions) : taken_(slots), long_actions_(long_actions) {}

  // Takes the first slot from `earliest` on (of no particular period) for an action of one slot, or
  // for one of the long ones, and returns it; -1 where there is none that leaves room for the rest.
  int Take(int earliest, bool is_long) {
    const int slots = static_cast<int>(taken_.size());
    for (int slot = earliest; slot < earliest + slots; ++slot) {
      if (IsTaken(slot) || (is_long && IsTaken(slot + 1))) continue;
      Set(slot, is_long, true);
      if (RoomForLong() >= long_actions_ - (is_long ? 1 : 0)) {
        long_actions_ -= is_long ? 1 : 0;
        return slot;
      }
      Set(slot, is_long, false);
    }
    return -1;
  }

 private:
  std::size_t Index(int slot) const { return static_cast<std::size_t>(slot) % taken_.size(); }
  bool IsTaken(int slot) const { return taken_[Index(slot)] != 0; }
  void Set(int slot, bool is_long, bool taken) {
    taken_[Index(slot)] = taken ? 1 : 0;
    if (is_long) taken_[Index(slot + 1)] = taken ? 1 : 0;
  }

  // How many long actions still fit: half of each run of free slots, the period being a circle.
  int RoomForLong() const {
    const int slots = static_cast<int>(taken_.size());
    int begin = 0;
    while (begin < slots && !IsTaken(begin)) ++begin;
    if (begin == slots) return slots / 2;
    int room = 0, run = 0;
    for (int slot = begin; slot <= begin + slots; ++slot) {
      if (!IsTaken(slot)) {
        ++run;
      } else {
        room += run / 2;
        run = 0;
      }
    }
    return room;
  }

  std::vector<std::uint8_t> taken_;
  int long_actions_;
};

}  // namespace penstock
