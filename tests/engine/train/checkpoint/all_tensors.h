// Reads a whole checkpoint into memory.
#pragma once

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "train/checkpoint/checkpoint.h"

namespace penstock {

inline std::map<std::string, at::Tensor> AllTensors(const std::string& path) {
  std::map<std::string, at::Tensor> tensors;
  auto checkpoint = OpenCheckpoint(path);
  EXPECT_TRUE(checkpoint) << checkpoint.error().line();
  if (!checkpoint) return tensors;
  NamedState state;
  for (const auto& [name, stored] : checkpoint->reader.manifest().tensors) {
    state.emplace_back(name, at::empty(stored.shape, DtypeNamed(stored.dtype)));
    tensors.emplace(name, state.back().values);
  }
  const Status read = Restore(*checkpoint, state);
  EXPECT_TRUE(read) << read.error().line();
  return tensors;
}

inline void ExpectSameTensors(const std::map<std::string, at::Tensor>& a,
                              const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  }
}

}  // namespace penstock
