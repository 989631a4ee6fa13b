// Layout: which elements of a tensor a rank has.
//
// A tensor may be divided along one dimension: into rows or columns, experts, rows of the
// vocabulary; or along equal blocks of one, such as the queries, keys and values of a joint
// projection. Of such a box, in row-major order, a rank has a range of elements: all of them, or
// its shard (ZeRO). A box that is contiguous in the flattened tensor is only a range of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace penstock {

// The indices [first, first + count) of one dimension, or of each of its equal blocks.
struct Box {
  std::int64_t dimension = 0;
  std::int64_t first = 0, count = 0;
  std::int64_t blocks = 1;

  friend bool operator==(const Box&, const Box&) = default;
};

class Layout {
 public:
  // All elements.
  explicit Layout(std::vector<std::int64_t> shape) : shape_(std::move(shape)) {}
  // The indices of a box. Requires: it lies within the shape and is not empty, and its blocks
  // divide the dimension evenly.
  Layout(std::vector<std::int64_t> shape, const Box& box);
  // The elements of this layout from `begin` on. Requires: it has them.
  Layout From(std::int64_t begin) const;

  const std::vector<std::int64_t>& shape() const { return shape_; }  // of the whole tensor
  // The box, unless it is contiguous.
  const std::optional<Box>& box() const { return box_; }
  // The first element, in the box or else in the flattened tensor.
  std::int64_t begin() const { return begin_; }
  // The elements of the box, or else of the whole tensor.
  std::int64_t elements() const;

  // Calls f(at, own, count) for the longest runs of consecutive elements of both: elements from
  // `at` on of the flattened tensor are those from `own` on of the first `count` ones here. Stops
  // and returns false if f does.
  template <class Function>
  bool ForRuns(std::int64_t count, Function f) const;
  // Calls f(at, in_box, count) for the elements of the box among `count` ones of the flattened
  // tensor from `at` on.
  template <class Function>
  bool ForRunsOfBox(std::int64_t at, std::int64_t count, Function f) const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  // Elements between two consecutive rows of the box, and of such a row. Without a box, one row.
  struct Rows {
    std::int64_t stride, first, size;
  };
  Rows RowsOf() const;

  std::vector<std::int64_t> shape_;
  std::optional<Box> box_;
  std::int64_t begin_ = 0;
};

template <class Function>
bool Layout::ForRuns(std::int64_t count, Function f) const {
  const auto [stride, first, size] = RowsOf();
  for (std::int64_t own = 0; own < count;) {
    const std::int64_t row = (begin_ + own) / size, in_row = (begin_ + own) % size;
    const std::int64_t run = std::min(size - in_row, count - own);
    if (!f(row * stride + first + in_row, own, run)) return false;
    own += run;
  }
  return true;
}

template <class Function>
bool Layout::ForRunsOfBox(std::int64_t at, std::int64_t count, Function f) const {
  const auto [stride, first, size] = RowsOf();
  for (std::int64_t row = at / stride; row * stride < at + count; ++row) {
    const std::int64_t row_begin = row * stride + first;
    const std::int64_t begin = std::max(at, row_begin);
    const std::int64_t end = std::min(at + count, row_begin + size);
    if (begin < end && !f(begin, row * size + begin - row_begin, end - begin)) return false;
  }
  return true;
}

}  // namespace penstock
