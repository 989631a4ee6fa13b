// MatrixExchange: gathers matrices that the border of a shard divides, so that every replica with a
// part of one can orthogonalize it. Matrices within a shard need no exchange. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/rank_group.h"
#include "train/shards/shards.h"

namespace penstock {

// A parameter as the exchange needs it.
struct ExchangedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  bool orthogonalized = false;
};

// The part of a divided matrix that one shard has.
struct MatrixFragment {
  std::size_t parameter = 0;
  std::int64_t matrix = 0;          // index in its parameter
  std::int64_t begin = 0, end = 0;  // elements of the flattened parameter
  std::int64_t at = 0;              // place in the block of the shard
};

// Returns the fragments of each shard. `parameters` are the parameters of `shards`, in its order.
std::vector<std::vector<MatrixFragment>> FragmentsOf(
    const Shards& shards, const std::vector<ExchangedParameter>& parameters);
// Returns the elements of every shard's block.
std::int64_t BlockElements(const std::vector<std::vector<MatrixFragment>>& fragments);

class MatrixExchange {
 public:
  // The group has one rank per shard. The parts are on `device`.
  MatrixExchange(const Shards& shards, std::vector<ExchangedParameter> parameters,
                 std::shared_ptr<RankGroup> group, c10::Device device);

  // Whether the matrix is divided. `begin` is the first element of the own part.
  bool Divides(const std::string& parameter, std::int64_t matrix) const;
  // Returns the place for the own part of a divided matrix.
  at::Tensor Own(const std::string& parameter, std::int64_t matrix);
  // Exchanges the parts. Called on all replicas. Throws std::runtime_error if the run is aborted.
  void Gather();
  // Copies all parts to `whole`, which is flat. Requires: Gather.
  void CopyTo(const std::string& parameter, std::int64_t matrix, const at::Tensor& whole) const;

  std::int64_t bytes() const { return static_cast<std::int64_t>(blocks_.nbytes()); }

 private:
  // Returns the shard's part of the matrix, or null.
  const MatrixFragment* Find(std::size_t shard, const std::string& parameter,
                             std::int64_t matrix) const;
  at::Tensor PlaceOf(std::size_t shard, const MatrixFragment& fragment) const;

  std::vector<ExchangedParameter> parameters_;
  std::vector<std::vector<MatrixFragment>> fragments_;  // by shard
  std::shared_ptr<RankGroup> group_;
  std::int64_t block_ = 0;
  at::Tensor blocks_;  // [shards * block]
};

}  // namespace penstock
