// The slots of a rank in one period, which repeats for every microbatch. Finds slots for an action
// such that they are free for every microbatch.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

class RepeatedSlots {
 public:
  // `slots` in a period, which must finally have room for `long_actions` pairs of adjacent slots.
  RepeatedSlots(int slots, int long_actions) : taken_(slots), long_actions_(long_actions) {}

  // Takes the first slot from `earliest` on (in any period) for an action of one slot, or the first
  // pair for one of the long actions, and returns it. Returns -1 if none leaves room for the
  // remaining long actions.
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

  // How many long actions still fit: half of each run of free slots, with the period as a circle.
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
