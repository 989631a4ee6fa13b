#include "checkpoint/layout.h"

#include <functional>
#include <numeric>

#include "base/index.h"

namespace penstock {
namespace {

std::int64_t Product(std::vector<std::int64_t>::const_iterator begin,
                     std::vector<std::int64_t>::const_iterator end) {
  return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
}

}  // namespace

Layout::Layout(std::vector<std::int64_t> shape, const Box& box) : shape_(std::move(shape)) {
  const auto dimension = shape_.begin() + box.dimension;
  if (box.count * box.blocks == *dimension) return;
  if (Product(shape_.begin(), dimension) * box.blocks > 1) {
    box_ = box;
  } else {
    begin_ = box.first * Product(dimension + 1, shape_.end());
  }
}

Layout Layout::From(std::int64_t begin) const {
  Layout from = *this;
  from.begin_ += begin;
  return from;
}

std::int64_t Layout::elements() const {
  const std::int64_t all = Product(shape_.begin(), shape_.end());
  return box_ ? all / shape_[Index(box_->dimension)] * box_->count * box_->blocks : all;
}

Layout::Rows Layout::RowsOf() const {
  if (!box_) {
    const std::int64_t all = std::max(elements(), std::int64_t{1});
    return {all, 0, all};
  }
  const std::int64_t inner = Product(shape_.begin() + box_->dimension + 1, shape_.end());
  return {shape_[Index(box_->dimension)] / box_->blocks * inner, box_->first * inner,
          box_->count * inner};
}

}  // namespace penstock
