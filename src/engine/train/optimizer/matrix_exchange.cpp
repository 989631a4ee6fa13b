#include "train/optimizer/matrix_exchange.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <stdexcept>

#include "base/index.h"
#include "base/result.h"
#include "train/memory_of.h"
#include "train/optimizer/muon.h"

namespace penstock {

std::vector<std::vector<MatrixFragment>> FragmentsOf(
    const Shards& shards, const std::vector<ExchangedParameter>& parameters) {
  std::vector<std::vector<MatrixFragment>> all(Index(shards.shards()));
  for (int shard = 0; shard < shards.shards(); ++shard) {
    std::int64_t at = 0;
    for (const Shards::ParameterPiece& piece : shards.pieces(shard)) {
      const ExchangedParameter& parameter = parameters[piece.parameter];
      if (!parameter.orthogonalized) continue;
      const std::int64_t size = Matrices(parameter.shape).elements();
      for (std::int64_t matrix = piece.begin / size; matrix * size < piece.end; ++matrix) {
        const std::int64_t begin = std::max(piece.begin, matrix * size);
        const std::int64_t end = std::min(piece.end, (matrix + 1) * size);
        if (end - begin == size) continue;
        all[Index(shard)].push_back({piece.parameter, matrix, begin, end, at});
        at += end - begin;
      }
    }
  }
  return all;
}

std::int64_t BlockElements(const std::vector<std::vector<MatrixFragment>>& fragments) {
  std::int64_t largest = 0;
  for (const auto& of_shard : fragments) {
    if (of_shard.empty()) continue;
    const MatrixFragment& last = of_shard.back();
    largest = std::max(largest, last.at + last.end - last.begin);
  }
  return largest;
}

MatrixExchange::MatrixExchange(const Shards& shards, std::vector<ExchangedParameter> parameters,
                               std::shared_ptr<RankGroup> group, c10::Device device)
    : parameters_(std::move(parameters)),
      fragments_(FragmentsOf(shards, parameters_)),
      group_(std::move(group)),
      block_(BlockElements(fragments_)),
      blocks_(at::zeros({block_ * shards.shards()},
                        at::TensorOptions().dtype(at::kFloat).device(device))) {}

const MatrixFragment* MatrixExchange::Find(std::size_t shard, const std::string& parameter,
                                           std::int64_t matrix) const {
  for (const MatrixFragment& each : fragments_[shard]) {
    if (each.matrix == matrix && parameters_[each.parameter].name == parameter) return &each;
  }
  return nullptr;
}

at::Tensor MatrixExchange::PlaceOf(std::size_t shard, const MatrixFragment& fragment) const {
  return blocks_.narrow(0, static_cast<std::int64_t>(shard) * block_ + fragment.at,
                        fragment.end - fragment.begin);
}

bool MatrixExchange::Divides(const std::string& parameter, std::int64_t matrix) const {
  return Find(Index(group_->rank()), parameter, matrix) != nullptr;
}

at::Tensor MatrixExchange::Own(const std::string& parameter, std::int64_t matrix) {
  const std::size_t own = Index(group_->rank());
  return PlaceOf(own, *Find(own, parameter, matrix));
}

void MatrixExchange::Gather() {
  if (block_ == 0) return;
  const std::span<std::byte> all = MemoryOf(blocks_);
  const std::size_t size = Index(block_) * sizeof(float);
  const auto started = group_->AllGather(all.subspan(Index(group_->rank()) * size, size), all);
  if (!started) throw std::runtime_error(started.error().line());
  const Status status = group_->Wait(*started);
  if (!status) throw std::runtime_error(status.error().line());
}

void MatrixExchange::CopyTo(const std::string& parameter, std::int64_t matrix,
                            const at::Tensor& whole) const {
  for (std::size_t shard = 0; shard < fragments_.size(); ++shard) {
    const MatrixFragment* const part = Find(shard, parameter, matrix);
    if (part == nullptr) continue;
    whole.narrow(0, part->begin - matrix * whole.numel(), part->end - part->begin)
        .copy_(PlaceOf(shard, *part));
  }
}

}  // namespace penstock
