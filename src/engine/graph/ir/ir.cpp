#include "graph/ir/ir.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>

namespace penstock {

TensorType TypeOf(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec()};
}

std::int64_t BytesOf(const TensorType& type) {
  auto bytes = static_cast<std::int64_t>(c10::elementSize(type.dtype));
  for (const std::int64_t size : type.sizes) bytes *= size;
  return bytes;
}

bool IsContiguous(const TensorType& type) {
  std::int64_t expected = 1;
  for (std::size_t i = type.sizes.size(); i-- > 0;) {
    if (type.sizes[i] == 1) continue;
    if (type.strides[i] != expected) return false;
    expected *= type.sizes[i];
  }
  return true;
}

TensorType ContiguousType(c10::ScalarType dtype, std::vector<std::int64_t> sizes) {
  TensorType type{dtype, std::move(sizes), {}};
  type.strides.resize(type.sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = type.sizes.size(); i-- > 0;) {
    type.strides[i] = stride;
    stride *= std::max<std::int64_t>(type.sizes[i], 1);
  }
  return type;
}

std::int64_t ExtentOf(const TensorType& type) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i] == 0) return 0;
    last += (type.sizes[i] - 1) * type.strides[i];
  }
  return last + 1;
}

bool Fits(const at::Tensor& tensor, const TensorType& type) {
  TensorType actual = TypeOf(tensor);
  if (!type.rows_vary) return actual == type;
  if (actual.sizes.size() != type.sizes.size()) return false;
  actual.sizes[0] = type.sizes[0];
  actual.rows_vary = true;
  return actual == type;
}

ValueId Graph::AddValue(TensorValue value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size()) - 1;
}

bool IsRandom(const Node& node) {
  if (!node.op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  const auto dropout = node.op.schema().argumentIndexWithName("dropout_p");
  if (!dropout) return true;
  const auto* p = std::get_if<c10::IValue>(&node.arguments[*dropout]);
  return p == nullptr || !p->isDouble() || p->toDouble() != 0.0;
}

int MutatedArgument(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace penstock
