// Rows of tokens in the order of the experts that process them.
//
// Each of T tokens chooses K of the experts. An expert layer has one row per choice, T * K in all,
// sorted by expert; rows of one expert are in the order of their tokens. Nothing is dropped or
// padded, so the number of rows is always the same, and only the counts per expert vary.
//
//   penstock::sort_by_expert(Tensor chosen, int experts) -> (Tensor, Tensor, Tensor)
//   penstock::gather_rows(Tensor x, Tensor? weights, Tensor order, int choices) -> Tensor
//   penstock::combine_rows(Tensor rows, Tensor? weights, Tensor places) -> Tensor
//   penstock::row_products(Tensor x, Tensor rows, Tensor places) -> Tensor
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock {

// Which row belongs to which choice. All are int64.
struct Routing {
  at::Tensor order;   // [T * K]: by row, its choice: token * K + the choice's number
  at::Tensor places;  // [T, K]: by choice, its row
  at::Tensor counts;  // [experts]: rows per expert
};

// Sorts the choices [T, K] int64 by expert. Throws c10::Error for an expert that does not exist.
Routing SortByExpert(const at::Tensor& chosen, std::int64_t experts);

// Copies the tokens x [T, D] to their rows [T * K, D]. Supports autograd.
at::Tensor GatherRows(const at::Tensor& x, const Routing& routing);

// Returns the sum of each token's rows [T * K, D], times their weights [T, K] f32: [T, D]. Adds in
// the order of the choices, in f32. Supports autograd.
at::Tensor CombineRows(const at::Tensor& rows, const at::Tensor& weights, const Routing& routing);

}  // namespace penstock
