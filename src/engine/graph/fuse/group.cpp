#include "graph/fuse/group.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace penstock {
namespace {

// A larger kernel costs more than it saves.
constexpr std::size_t kMaxMembers = 48;

// Splits a dim into an outer and an inner one. The inner one has `inner` elements and follows the
// outer one.
void Split(FuseGroup& group, std::size_t dim, std::int64_t inner) {
  const auto at = static_cast<std::ptrdiff_t>(dim);
  group.sizes[dim] /= inner;
  group.sizes.insert(group.sizes.begin() + at + 1, inner);
  for (FuseMember& member : group.members) {
    for (FuseAccess& access : member.accesses) {
      std::vector<std::int64_t>& strides = access.at.strides;
      const std::int64_t stride = strides[dim];
      strides[dim] = stride * inner;
      strides.insert(strides.begin() + at + 1, stride);
    }
    if (member.reduced.empty()) continue;
    const bool reduced = member.reduced[dim];
    member.reduced.insert(member.reduced.begin() + at + 1, reduced);
  }
}

// Indices of a member and of one of its accesses.
struct AccessIndex {
  std::size_t member;
  std::size_t access;
};

const KernelAccess& At(const FuseGroup& group, AccessIndex index) {
  return group.members[index.member].accesses[index.access].at;
}

// Dims in ascending order of their strides; dims of stride 0 are listed separately.
struct Dims {
  std::vector<std::size_t> moving;
  std::vector<std::size_t> still;
};

Dims DimsOf(const FuseGroup& group, AccessIndex index) {
  const std::vector<std::int64_t>& strides = At(group, index).strides;
  Dims dims;
  for (std::size_t i = strides.size(); i-- > 0;) {
    (strides[i] == 0 ? dims.still : dims.moving).push_back(i);
  }
  std::stable_sort(dims.moving.begin(), dims.moving.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(strides[a]) < std::abs(strides[b]);
  });
  return dims;
}

// Finds which dims of two groups correspond, splitting them if necessary.
class Aligner {
 public:
  Aligner(FuseGroup& a, FuseGroup& b) : a_(a), b_(b) {}

  // Maps the dims of the two accesses onto each other. Returns false if their strides differ.
  bool Align(AccessIndex in_a, AccessIndex in_b) {
    if (!Pair(in_a, in_b, /*moving=*/true)) return false;
    const Dims rest_a = DimsOf(a_, in_a), rest_b = DimsOf(b_, in_b);
    return rest_a.still.empty() || rest_b.still.empty() || Pair(in_a, in_b, /*moving=*/false);
  }

  // By dim of b: the dim of a, or -1 if it is new.
  const std::vector<int>& of_b() const { return of_b_; }

 private:
  bool Pair(AccessIndex in_a, AccessIndex in_b, bool moving) {
    of_b_.resize(b_.sizes.size(), -1);
    for (std::size_t i = 0;; ++i) {
      const Dims dims_a = DimsOf(a_, in_a), dims_b = DimsOf(b_, in_b);
      const auto& list_a = moving ? dims_a.moving : dims_a.still;
      const auto& list_b = moving ? dims_b.moving : dims_b.still;
      if (i == list_a.size() || i == list_b.size()) return list_a.size() == list_b.size();
      if (!MatchSizes(list_a[i], list_b[i])) return false;
      const std::size_t da = DimsIndex(in_a, moving, i, true);
      const std::size_t db = DimsIndex(in_b, moving, i, false);
      if (std::abs(At(a_, in_a).strides[da]) != std::abs(At(b_, in_b).strides[db])) return false;
      of_b_[db] = static_cast<int>(da);
    }
  }

  std::size_t DimsIndex(AccessIndex index, bool moving, std::size_t i, bool of_a) const {
    const Dims dims = DimsOf(of_a ? a_ : b_, index);
    return moving ? dims.moving[i] : dims.still[i];
  }

  // Splits the larger of two dims so that its inner part is as large as the other dim. Returns
  // false if that is impossible.
  bool MatchSizes(std::size_t da, std::size_t db) {
    const std::int64_t na = a_.sizes[da], nb = b_.sizes[db];
    if (na == nb) return true;
    if (na > nb) {
      if (na % nb != 0) return false;
      Split(a_, da, nb);
      for (int& each : of_b_) each += each > static_cast<int>(da) ? 1 : 0;
      return true;
    }
    if (nb % na != 0) return false;
    Split(b_, db, na);
    of_b_.insert(of_b_.begin() + static_cast<std::ptrdiff_t>(db) + 1, -1);
    return true;
  }

  FuseGroup& a_;
  FuseGroup& b_;
  std::vector<int> of_b_;
};

// Adds the members of b to a. Their dims become dims of a, or new ones where of_b is -1.
void Append(FuseGroup& a, const FuseGroup& b, std::vector<int> of_b) {
  for (std::size_t i = 0; i < of_b.size(); ++i) {
    if (of_b[i] >= 0) continue;
    of_b[i] = static_cast<int>(a.sizes.size());
    a.sizes.push_back(b.sizes[i]);
  }
  for (FuseMember& member : a.members) {
    for (FuseAccess& access : member.accesses) access.at.strides.resize(a.sizes.size(), 0);
    if (!member.reduced.empty()) member.reduced.resize(a.sizes.size(), false);
  }
  for (FuseMember member : b.members) {
    for (FuseAccess& access : member.accesses) {
      std::vector<std::int64_t> strides(a.sizes.size(), 0);
      for (std::size_t i = 0; i < of_b.size(); ++i) {
        strides[of_b[i]] = access.at.strides[i];
      }
      access.at.strides = std::move(strides);
    }
    if (!member.reduced.empty()) {
      std::vector<bool> reduced(a.sizes.size(), false);
      for (std::size_t i = 0; i < of_b.size(); ++i) {
        reduced[of_b[i]] = member.reduced[i];
      }
      member.reduced = std::move(reduced);
    }
    a.members.push_back(std::move(member));
  }
  std::sort(a.members.begin(), a.members.end(),
            [](const FuseMember& x, const FuseMember& y) { return x.node < y.node; });
}

// Returns whether the member and everything that it reads within the group is pointwise, so that it
// can be computed at another point. Sums are not.
bool IsPointwise(const FuseGroup& group, const FuseMember& member) {
  if (!member.reduced.empty()) return false;
  for (std::size_t i = 1; i < member.accesses.size(); ++i) {
    const int producer = ProducerOf(group, member.accesses[i].root);
    if (producer >= 0 && !IsPointwise(group, group.members[producer])) {
      return false;
    }
  }
  return true;
}

// Returns whether every read within the group is of the element that is produced at that point, or
// of its mirror.
bool ReadsFit(const FuseGroup& group) {
  std::vector<bool> mirrored;
  for (const FuseMember& member : group.members) {
    for (std::size_t i = 1; i < member.accesses.size(); ++i) {
      const FuseAccess& read = member.accesses[i];
      const int producer = ProducerOf(group, read.root);
      if (producer < 0) continue;
      const FuseMember& written = group.members[producer];
      mirrored.assign(group.sizes.size(), false);
      if (!IsMirrored(group, written.accesses[0].at, read.at, mirrored)) return false;
      const bool any = std::find(mirrored.begin(), mirrored.end(), true) != mirrored.end();
      if (any && !IsPointwise(group, written)) return false;
    }
  }
  return true;
}

// Returns whether every access has stride 0 or 1 along the innermost loop, so that vectors can be
// loaded.
bool HasUnitStrides(const FuseGroup& group) {
  const std::size_t innermost = LoopOrder(group).back();
  for (const FuseMember& member : group.members) {
    for (const FuseAccess& access : member.accesses) {
      const std::int64_t stride = access.at.strides[innermost];
      if (stride != 0 && stride != 1) return false;
    }
  }
  return true;
}

std::optional<FuseGroup> JoinAt(FuseGroup a, FuseGroup b, AccessIndex in_a, AccessIndex in_b) {
  Aligner aligner(a, b);
  if (!aligner.Align(in_a, in_b)) return std::nullopt;
  Append(a, b, aligner.of_b());
  if (!Fits(a)) return std::nullopt;
  return a;
}

}  // namespace

int ProducerOf(const FuseGroup& group, ValueId root) {
  if (root == kNoValue) return -1;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    if (group.members[i].accesses[0].root == root) return static_cast<int>(i);
  }
  return -1;
}

bool IsMirrored(const FuseGroup& group, const KernelAccess& written, const KernelAccess& read,
                std::vector<bool>& mirrored) {
  std::int64_t offset = written.offset;
  for (std::size_t i = 0; i < group.sizes.size(); ++i) {
    if (read.strides[i] == written.strides[i]) continue;
    if (read.strides[i] != -written.strides[i]) return false;
    mirrored[i] = true;
    offset += written.strides[i] * (group.sizes[i] - 1);
  }
  return read.offset == offset;
}

std::optional<std::vector<bool>> RowDims(const FuseGroup& group) {
  std::optional<std::vector<bool>> row;
  const auto agree = [&](const std::vector<bool>& dims) {
    if (!row) row = dims;
    return *row == dims;
  };
  for (const FuseMember& member : group.members) {
    if (!member.reduced.empty() && !agree(member.reduced)) return std::nullopt;
  }
  for (const FuseMember& member : group.members) {
    if (member.accumulates) continue;
    std::vector<bool> still;
    for (const std::int64_t stride : member.accesses[0].at.strides) still.push_back(stride == 0);
    const bool any = std::find(still.begin(), still.end(), true) != still.end();
    if (any && !agree(still)) return std::nullopt;
  }
  return row.value_or(std::vector<bool>(group.sizes.size(), false));
}

std::vector<std::size_t> LoopOrder(const FuseGroup& group) {
  const std::vector<bool> row = RowDims(group).value();
  std::vector<std::int64_t> steps(group.sizes.size());
  for (const FuseMember& member : group.members) {
    for (const FuseAccess& access : member.accesses) {
      if (ProducerOf(group, access.root) >= 0) continue;  // it may never be stored
      for (std::size_t i = 0; i < steps.size(); ++i) steps[i] += std::abs(access.at.strides[i]);
    }
  }
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return row[a] != row[b] ? row[b] : steps[a] > steps[b];
  });
  return order;
}

bool Fits(const FuseGroup& group) {
  const auto accumulating =
      std::count_if(group.members.begin(), group.members.end(),
                    [](const FuseMember& member) { return member.accumulates; });
  return accumulating < 2 && group.members.size() <= kMaxMembers && ReadsFit(group) &&
         RowDims(group) && HasUnitStrides(group);
}

std::optional<FuseGroup> Join(const FuseGroup& a, const FuseGroup& b) {
  // The dims correspond as in a tensor that both groups access. Tries tensors that one of them
  // produces first.
  for (const bool produced : {true, false}) {
    for (std::size_t i = 0; i < a.members.size(); ++i) {
      for (std::size_t j = 0; j < b.members.size(); ++j) {
        const auto& in_a = a.members[i].accesses;
        const auto& in_b = b.members[j].accesses;
        for (std::size_t x = 0; x < in_a.size(); ++x) {
          for (std::size_t y = 0; y < in_b.size(); ++y) {
            if (in_a[x].root == kNoValue || in_a[x].root != in_b[y].root) continue;
            if ((x == 0 || y == 0) != produced) continue;
            if (auto joined = JoinAt(a, b, {i, x}, {j, y})) return joined;
          }
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace penstock
