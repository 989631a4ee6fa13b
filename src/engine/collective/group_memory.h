// GroupMemory: where the ranks of a group have the data of their collectives, and who moves it.
//
// Memory of the host needs none of this. For a device, whose work is ordered by streams, each call
// only starts work: Begin and End order it after what a rank's stream does before a collective, and
// before what it does afterwards.
// Threads: any.
#pragma once

#include <span>
#include <vector>

#include "collective/element_sum.h"

namespace penstock {

class GroupMemory {
 public:
  using Bytes = std::span<std::byte>;
  using ConstBytes = std::span<const std::byte>;

  // A piece of data: the memory of a rank, or bytes on the host that a process has received.
  struct Piece {
    ConstBytes data;
    bool on_host = false;
  };

  GroupMemory() = default;
  GroupMemory(const GroupMemory&) = delete;
  GroupMemory& operator=(const GroupMemory&) = delete;
  virtual ~GroupMemory() = default;

  // Called by a rank's thread before a collective uses the rank's memory, and after it.
  virtual void Begin() {}
  virtual void End() {}
  // Waits until all that was started has run.
  virtual void Synchronize() {}

  virtual void Copy(const Piece& from, Bytes to);
  // As SumInOrder.
  virtual void Sum(const std::vector<Piece>& parts, Bytes sum, ElementType type);
  // Returns the bytes on the host. `kept` holds them if they are a copy.
  virtual ConstBytes OnHost(ConstBytes data, std::vector<std::byte>& kept);
};

}  // namespace penstock
