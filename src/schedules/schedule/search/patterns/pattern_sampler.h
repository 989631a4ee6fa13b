// Draws random period patterns for a search to try. Every run draws the same ones.
#pragma once

#include <cstdint>
#include <optional>
#include <random>

#include "schedule/search/patterns/period_pattern.h"

namespace penstock {

// Uses the raw bits of the standard generator, since the distributions differ between libraries.
class Rng {
 public:
  // Returns 0 to n-1.
  int Below(int n) { return static_cast<int>(engine_() % static_cast<std::uint32_t>(n)); }
  double Between(double low, double high) {
    return low + (high - low) * (static_cast<double>(engine_()) * 0x1p-32);
  }

 private:
  std::mt19937 engine_{1};
};

// A microbatch goes down and up its chain with one pace per kind of chunk and direction, which may
// change at one rank, and pauses at the turns. Its times are either the costs' times, or slots of
// equal length that repeat without conflict. If drawn patterns do not fit the memory, later ones
// get longer periods.
class PatternSampler {
 public:
  explicit PatternSampler(const Problem& problem);

  // Draws a pattern, which may exceed the memory limit. The caller reports that by Accepted() or
  // Rejected().
  PeriodPattern Draw();
  void Accepted();
  void Rejected();
  // Records that the last pattern led to the best schedule so far. Later ones are often similar.
  void MarkLastAsBest() { best_shape_ = drawn_; }

  Rng& rng() { return rng_; }

 private:
  // Time from rank to rank, in durations of the action, on even and odd chunks.
  struct Paces {
    double forward[2], backward[2];
  };

  struct PatternShape {
    Paces paces[2];  // on the ranks before `change`, and on the others
    int change;
    double turn, turn_back, last;  // pauses, in periods
    double weight_lag;
    bool joined;        // in slots: W directly after I, which suits costs for which the two differ
    int hiccup_period;  // in slots: one step in this many takes one or two more slots; 0 for none
    bool in_slots;
  };

  PatternShape DrawShape();
  void AlignToSlots(PatternShape& shape);
  PatternShape LikeBest();
  double DrawPace();
  double DrawPause(int one_in);
  PeriodPattern InTimes(const PatternShape& shape) const;
  bool InSlots(const PatternShape& shape, PeriodPattern& pattern);
  int ChunkParity(int stage) const { return stage / problem_.placement.ranks() % 2; }
  double ForwardPace(const PatternShape& shape, int stage) const;
  double BackwardPace(const PatternShape& shape, int stage) const;
  bool IsTurn(int from, int to) const;

  const Problem& problem_;
  const double period_;  // work of one microbatch on the busiest rank
  double stretch_ = 1;
  PatternShape drawn_ = {};
  std::optional<PatternShape> best_shape_;
  Rng rng_;
};

}  // namespace penstock
