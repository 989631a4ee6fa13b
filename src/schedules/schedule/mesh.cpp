#include "schedule/mesh.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

namespace penstock {
namespace {

constexpr std::array<std::string_view, kAxes> kNames = {"data", "expert", "pipeline", "context",
                                                        "tensor"};

// Calls f(name, size, stride) for the axes that texts name. There, `data` counts all replicas, and
// `expert` is a part of it.
template <class Function>
void ForNamedAxes(const Mesh& mesh, Function f) {
  for (std::size_t i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (axis == Axis::kData) {
      f(kNames[i], mesh.replicas(), mesh.Stride(Axis::kExpert));
    } else if (axis == Axis::kPipeline || (axis != Axis::kExpert && mesh.size(axis) > 1)) {
      f(kNames[i], mesh.size(axis), mesh.Stride(axis));
    }
  }
}

}  // namespace

Result<Mesh> Mesh::Make(const Sizes& sizes, const AxisOrder& order) {
  const std::array<int, kAxes> parts = {sizes.data, sizes.expert, sizes.pipeline, sizes.context,
                                        sizes.tensor};
  std::int64_t ranks = 1;
  for (std::size_t i = 0; i < kAxes; ++i) {
    if (parts[i] < 1)
      return InvalidArgument("{}: {} parts; at least 1 is needed", kNames[i], parts[i]);
    if (static_cast<Axis>(i) != Axis::kExpert) ranks *= parts[i];
    if (ranks <= std::numeric_limits<int>::max()) continue;
    return InvalidArgument("a mesh of {} ranks and more is too large", ranks);
  }
  if (sizes.data % sizes.expert != 0) {
    return InvalidArgument("expert: {} does not divide the {} replicas (data)", sizes.expert,
                           sizes.data);
  }
  Mesh mesh;
  mesh.sizes_ = parts;
  mesh.sizes_[0] = sizes.data / sizes.expert;
  mesh.order_ = order;
  return mesh;
}

int Mesh::Stride(Axis axis) const {
  int stride = 1;
  for (std::size_t i = kAxes - 1; order_[i] != axis; --i) stride *= size(order_[i]);
  return stride;
}

std::vector<int> Mesh::GroupOf(int rank, std::initializer_list<Axis> axes) const {
  std::vector<int> group = {rank};
  for (const Axis axis : axes) {
    const int first = -PlaceOf(rank, axis) * Stride(axis);
    std::vector<int> larger;
    for (const int member : group) {
      for (int place = 0; place < size(axis); ++place) {
        larger.push_back(member + first + place * Stride(axis));
      }
    }
    group = std::move(larger);
  }
  std::ranges::sort(group);
  return group;
}

std::vector<std::vector<int>> Mesh::Groups(std::initializer_list<Axis> axes) const {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < ranks(); ++rank) {
    std::vector<int> group = GroupOf(rank, axes);
    if (group.front() == rank) groups.push_back(std::move(group));
  }
  return groups;
}

std::string Mesh::ToString() const {
  std::string text;
  ForNamedAxes(*this, [&](std::string_view name, int size, int) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", size, name);
  });
  return text;
}

std::string Mesh::PlacesOf(int rank) const {
  std::string text;
  ForNamedAxes(*this, [&](std::string_view name, int size, int stride) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, rank / stride % size);
  });
  return text;
}

}  // namespace penstock
