// Searches for a short schedule of one placement within one memory limit.
#pragma once

#include <string>
#include <vector>

#include "schedule/catalog.h"
#include "schedule/placement.h"

namespace penstock {

class PlacementSearch {
 public:
  // kWaves is hanayo, with whole backwards on a zigzag.
  enum class Form { kLinear, kLooped, kZigzag, kWaves };

  // `params` has the sizes; it must outlive the search.
  PlacementSearch(Form form, int chunks, const ScheduleParams& params, Costs costs);
  static Placement PlacementOf(Form form, int ranks, int chunks);

  // The name of what Run returns within this limit.
  std::string NameWithin(double limit) const;
  const Placement& placement() const { return placement_; }
  const Costs& costs() const { return costs_; }
  // Whether an algorithm of the catalog searches this placement within a limit. A plan then
  // searches as much.
  bool is_cataloged() const {
    return form_ == Form::kLinear || form_ == Form::kWaves ||
           (form_ == Form::kZigzag && placement_.chunks() == 2);
  }
  bool splits_backward() const { return form_ != Form::kWaves; }

  // Returns the largest amount of memory up to `limit` that a rank can hold.
  double AmountWithin(double limit) const;

  // Returns the lanes of a short schedule within the limit. `effort` is the fraction of the usual
  // amount of work. Threads: any.
  // Requires: Prepare() has been called; the limit is at least the memory of one microbatch.
  std::vector<Lane> Run(double memory_limit, double effort) const;

  // Generates the schedules to start from.
  void Prepare();

 private:
  Form form_;
  const ScheduleParams& params_;
  Placement placement_;
  Costs costs_;
  std::vector<std::vector<Lane>> known_;
};

}  // namespace penstock
