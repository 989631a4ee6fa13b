// The block of one microbatch takes fixed slots on each rank and repeats every 6; W takes the first
// free slot after its I. Then, in order of slots, every action moves to the earliest free slot that
// its dependencies allow while the rank stays within the block's peak memory. A second pass does
// the same for what follows a rank's last F1, regardless of memory, and puts the W of that part
// last. All slots count equally, whatever the actions cost.
//
// The blocks come from Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024.
#include "schedule/algorithms/primus_vee.h"

#include <algorithm>
#include <array>
#include <deque>

#include "base/index.h"

namespace penstock {
namespace {

constexpr int kPeriod = 6;  // slots of one microbatch on one rank
constexpr int kNoTime = -1;

// The content of a slot; op kNone if it is free.
struct Cell {
  Op op = Op::kNone;
  int chunk = 0;
  int microbatch = 0;
  bool cooldown = false;  // after the rank's last F1
};

struct BlockSlots {
  std::array<int, 2> forward, backward;  // by chunk
};

BlockSlots SlotsOf(PrimusVee kind, int p, int r) {
  if (kind == PrimusVee::kMin) {
    const int pause = p % 3 == 0 ? 2 : 0;
    return {{r, 2 * p - 1 - r}, {4 * p + pause - 1 - r, 2 * p + pause + r}};
  }
  const int pause = p % 2 == 0 ? 3 : 0;
  return {{2 * r, 3 * p - 2 - r}, {6 * p + pause - 2 - r, 3 * p + pause - 1 + 2 * r}};
}

class SlotTable {
 public:
  SlotTable(PrimusVee kind, int ranks, int microbatches)
      : ranks_(ranks),
        microbatches_(microbatches),
        cells_(Index(ranks)),
        memory_(Index(ranks)),
        slot_of_(Index(3 * 2 * ranks) * Index(microbatches), kNoTime) {
    for (int rank = 0; rank < ranks; ++rank) {
      const BlockSlots slots = SlotsOf(kind, ranks, rank);
      for (int n = 0; n < microbatches; ++n) {
        for (const int chunk : {0, 1}) {
          Put(rank, slots.forward[chunk] + kPeriod * n, {Op::kForward, chunk, n, false});
          Put(rank, slots.backward[chunk] + kPeriod * n, {Op::kBackwardInput, chunk, n, false});
        }
      }
      AddWeights(rank);
    }
  }

  void SqueezeWithinMemory() {
    int limit = 0;
    for (const auto& memory : memory_) {
      limit = std::max(limit, *std::max_element(memory.begin(), memory.end()));
    }
    ForEachCellBySlot([&](int rank, int slot, const Cell& cell) {
      for (int to = Earliest(rank, cell); to < slot; ++to) {
        if (!IsFree(rank, to) || !Fits(rank, to, slot, Gain(cell.op), limit)) continue;
        for (int i = to; i < slot; ++i) memory_[rank][i] += Gain(cell.op);
        Move(rank, slot, to);
        return;
      }
    });
  }

  void SqueezeCooldown() {
    std::vector<std::vector<Cell>> weights(cells_.size());
    ForEachCellBySlot([&](int rank, int slot, const Cell& cell) {
      if (!cell.cooldown) return;
      if (cell.op == Op::kBackwardWeight) {
        weights[rank].push_back(cell);
        cells_[rank][slot] = {};
        return;
      }
      int to = Earliest(rank, cell);
      while (to < slot && !IsFree(rank, to)) ++to;
      if (to < slot) Move(rank, slot, to);
    });
    for (int rank = 0; rank < ranks_; ++rank) {
      for (const Cell& cell : weights[rank]) {
        int slot = Earliest(rank, cell);
        while (!IsFree(rank, slot)) ++slot;
        Put(rank, slot, cell);
      }
    }
  }

  std::vector<Lane> Lanes() const {
    std::vector<Lane> lanes(cells_.size());
    for (int rank = 0; rank < ranks_; ++rank) {
      for (const Cell& cell : cells_[rank]) {
        if (cell.op == Op::kNone) continue;
        lanes[rank].push_back(MakeAction(cell.op, Stage(rank, cell.chunk), cell.microbatch));
      }
    }
    return lanes;
  }

 private:
  // Number of activations that an op allocates on its rank.
  static int Gain(Op op) { return op == Op::kForward ? 1 : op == Op::kBackwardWeight ? -1 : 0; }

  int Stage(int rank, int chunk) const { return chunk == 0 ? rank : 2 * ranks_ - 1 - rank; }

  int& SlotOf(Op op, int stage, int microbatch) {
    const int kind = op == Op::kForward ? 0 : op == Op::kBackwardInput ? 1 : 2;
    return slot_of_[Index(kind * 2 * ranks_ + stage) * Index(microbatches_) + Index(microbatch)];
  }

  bool IsFree(int rank, int slot) const {
    const auto& cells = cells_[rank];
    return Index(slot) >= cells.size() || cells[slot].op == Op::kNone;
  }

  void Put(int rank, int slot, const Cell& cell) {
    auto& cells = cells_[rank];
    if (cells.size() <= Index(slot)) cells.resize(Index(slot) + 1);
    cells[slot] = cell;
    SlotOf(cell.op, Stage(rank, cell.chunk), cell.microbatch) = slot;
  }

  void Move(int rank, int from, int to) {
    const Cell cell = cells_[rank][from];
    cells_[rank][from] = {};
    Put(rank, to, cell);
  }

  // Places W in the order of I, each in the first free slot. Records the memory after each slot and
  // which cells follow the last F1.
  void AddWeights(int rank) {
    std::deque<Cell> waiting;
    bool cooldown = false;
    int held = 0;
    for (int slot = 0; Index(slot) < cells_[rank].size() || !waiting.empty(); ++slot) {
      if (IsFree(rank, slot)) {
        if (!waiting.empty()) {
          Cell weight = waiting.front();
          waiting.pop_front();
          weight.op = Op::kBackwardWeight;
          weight.cooldown = cooldown;
          Put(rank, slot, weight);
          --held;
        }
      } else {
        Cell& cell = cells_[rank][slot];
        cell.cooldown = cooldown;
        held += Gain(cell.op);
        if (cell.op == Op::kBackwardInput) waiting.push_back(cell);
        if (cell.op == Op::kBackwardInput && cell.chunk == 0 && cell.microbatch == 0) {
          cooldown = false;
        } else if (cell.op == Op::kForward && cell.chunk == 1 &&
                   cell.microbatch == microbatches_ - 1) {
          cooldown = true;
        }
      }
      memory_[rank].push_back(held);
    }
  }

  // The first slot after the dependencies of the cell and after the previous microbatch of its own
  // kind.
  int Earliest(int rank, const Cell& cell) {
    const int stage = Stage(rank, cell.chunk);
    const int n = cell.microbatch;
    int after = kNoTime;
    if (n > 0) after = SlotOf(cell.op, stage, n - 1);
    if (cell.op == Op::kForward) {
      if (stage > 0) after = std::max(after, SlotOf(cell.op, stage - 1, n));
    } else if (cell.op == Op::kBackwardInput) {
      const bool last = stage == 2 * ranks_ - 1;
      after =
          std::max(after, last ? SlotOf(Op::kForward, stage, n) : SlotOf(cell.op, stage + 1, n));
    } else {
      after = std::max(after, SlotOf(Op::kBackwardInput, stage, n));
    }
    return after + 1;
  }

  bool Fits(int rank, int first, int last, int gain, int limit) const {
    const auto& memory = memory_[rank];
    return std::all_of(memory.begin() + first, memory.begin() + last,
                       [&](int held) { return held + gain <= limit; });
  }

  // Visits cells by slot, then by rank. visit(rank, slot, cell) may move the cell to an earlier
  // slot.
  template <class Visit>
  void ForEachCellBySlot(Visit visit) {
    std::size_t slots = 0;
    for (const auto& cells : cells_) slots = std::max(slots, cells.size());
    for (int slot = 0; Index(slot) < slots; ++slot) {
      for (int rank = 0; rank < ranks_; ++rank) {
        if (IsFree(rank, slot)) continue;
        visit(rank, slot, Cell(cells_[rank][slot]));
      }
    }
  }

  int ranks_, microbatches_;
  std::vector<std::vector<Cell>> cells_;  // by rank and slot
  std::vector<std::vector<int>> memory_;  // activations held after each slot
  std::vector<int> slot_of_;              // by kind, stage and microbatch
};

}  // namespace

Schedule GeneratePrimusVee(PrimusVee kind, int ranks, int microbatches) {
  SlotTable table(kind, ranks, microbatches);
  table.SqueezeWithinMemory();
  table.SqueezeCooldown();
  Schedule schedule;
  schedule.placement = Placement::Vee(ranks);
  schedule.microbatches = microbatches;
  schedule.lanes = table.Lanes();
  return schedule;
}

}  // namespace penstock
