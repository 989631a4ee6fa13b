// Fingerprint: what a captured graph computes, in a form that two captures of the same code share.
//
// Values are numbered in the order of their first use, so that two graphs have equal fingerprints
// although they bind the same tensors in another order or as another kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {

struct Fingerprint {
  // By node: a hash of its op, its arguments and the nodes before it; last, a hash of the outputs.
  std::vector<std::uint64_t> nodes;
  std::vector<c10::OperatorHandle> ops;  // by node
  // By constant, in the order of first use: a hash of its content, and the node that reads it
  // first. No hash: a run reads the current values.
  std::vector<std::pair<std::optional<std::uint64_t>, std::size_t>> constants;
};

Fingerprint FingerprintOf(const Graph& graph);

// Where two captures differ.
struct CaptureDifference {
  std::size_t node = 0;    // the number of the first node that differs
  std::string op;          // its op in the second one; empty if only the outputs differ
  bool in_values = false;  // whether it reads a constant with other values
};
std::optional<CaptureDifference> FirstDifference(const Fingerprint& one, const Fingerprint& other);

}  // namespace penstock
