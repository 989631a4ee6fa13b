// Collectives of one to three ranks, each with a dense tensor and with a view.
#include <ATen/ATen.h>

#include <numeric>

#include "base/index.h"
#include "graph/ops/collective.h"
#include "tests/engine/graph/ops/op_rows.h"

namespace penstock::testing {
namespace {

using at::Tensor;
using c10::IValue;
using Calls = std::vector<std::vector<Arguments>>;

using Ranks = std::vector<Arguments>;

// Draws calls whose arguments between x and the group are others(ranks, rank). Each rank has two
// rows for each one.
auto DrawCollective(Arguments (*others)(int ranks, int rank)) {
  return [others] {
    Calls calls;
    for (const int ranks : {1, 2, 3}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
        for (const bool view : {false, true}) {
          Ranks& call = calls.emplace_back();
          for (int rank = 0; rank < ranks; ++rank) {
            const Tensor x = WholeNumbers({3, 2 * ranks}, dtype).t();
            Arguments& arguments = call.emplace_back(Arguments{view ? x : x.contiguous()});
            for (const IValue& other : others(ranks, rank)) arguments.push_back(other);
            arguments.emplace_back(kOpGroup);
          }
        }
      }
    }
    return calls;
  };
}

Tensors Inputs(const Ranks& ranks) {
  Tensors inputs;
  for (const Arguments& arguments : ranks) inputs.push_back(arguments[0].toTensor());
  return inputs;
}
Tensor Sum(const Ranks& ranks) {
  return at::stack(Inputs(ranks)).sum(0).to(Inputs(ranks)[0].scalar_type());
}

// The results by rank, one for each.
auto OfRank(Tensor (*result)(const Ranks& ranks, std::size_t rank)) {
  return [result](const Ranks& ranks) {
    std::vector<Tensors> results;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      results.push_back({result(ranks, rank)});
    }
    return results;
  };
}

// How many rows each rank sends to each in uneven exchanges of one, two and three ranks.
constexpr std::int64_t kSent[3][3][3] = {
    {{2}}, {{1, 3}, {0, 4}}, {{0, 5, 1}, {2, 2, 2}, {3, 0, 3}}};

std::vector<std::int64_t> RowsTo(int ranks, int from) {
  const std::int64_t* const row = kSent[ranks - 1][from];
  return {row, row + ranks};
}
std::vector<std::int64_t> RowsFrom(int ranks, int to) {
  std::vector<std::int64_t> rows;
  for (int from = 0; from < ranks; ++from) rows.push_back(RowsTo(ranks, from)[Index(to)]);
  return rows;
}
// Halves of each count, as of two groups of experts per rank.
Tensor InGroups(const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> counts;
  for (const std::int64_t count : rows) {
    counts.push_back(count / 2);
    counts.push_back(count - count / 2);
  }
  return at::tensor(counts, at::kLong);
}

Tensor UnevenResult(const Ranks& ranks, std::size_t to) {
  const int count = static_cast<int>(ranks.size());
  Tensors received;
  for (int from = 0; from < count; ++from) {
    received.push_back(Inputs(ranks)[Index(from)].split_with_sizes(RowsTo(count, from))[to]);
  }
  return at::cat(received);
}

std::size_t RootOf(const Ranks& ranks) { return Index(ranks[0][1].toInt()); }

}  // namespace

std::vector<OpRow> CollectiveRows() {
  const auto draw_root = DrawCollective([](int ranks, int) { return Arguments{ranks / 2}; });
  const auto draw_ranks = DrawCollective([](int ranks, int) { return Arguments{ranks}; });
  const auto draw_plain = DrawCollective([](int, int) { return Arguments(); });
  return {
      {.op = "penstock::all_gather",
       .draw = draw_ranks,
       .reference = OfRank([](const Ranks& ranks, std::size_t) { return at::cat(Inputs(ranks)); }),
       .differentiable = {0}},
      {.op = "penstock::reduce_scatter",
       .draw = draw_ranks,
       .reference = OfRank([](const Ranks& ranks, std::size_t rank) {
         return Sum(ranks).chunk(std::ssize(ranks))[rank];
       }),
       .differentiable = {0}},
      {.op = "penstock::all_reduce",
       .draw = draw_plain,
       .reference = OfRank([](const Ranks& ranks, std::size_t) { return Sum(ranks); }),
       .differentiable = {0}},
      {.op = "penstock::all_to_all",
       .draw = draw_plain,
       .reference = OfRank([](const Ranks& ranks, std::size_t rank) {
         Tensors received;
         for (const Tensor& x : Inputs(ranks)) received.push_back(x.chunk(std::ssize(ranks))[rank]);
         return at::cat(received);
       }),
       .differentiable = {0}},
      {.op = "penstock::all_to_all_uneven",
       .draw = DrawCollective([](int ranks, int rank) {
         return Arguments{RowsTo(ranks, rank), RowsFrom(ranks, rank)};
       }),
       .reference = OfRank(UnevenResult),
       .differentiable = {0}},
      {.op = "penstock::all_to_all_rows",
       .draw = DrawCollective([](int ranks, int rank) {
         const std::vector<std::int64_t> received = RowsFrom(ranks, rank);
         return Arguments{InGroups(RowsTo(ranks, rank)), InGroups(received),
                          std::accumulate(received.begin(), received.end(), std::int64_t{0})};
       }),
       .reference = OfRank(UnevenResult),
       .differentiable = {0},
       .call =
           [](const Arguments& in) {
             return ReturnRows(in[0].toTensor(), in[1].toTensor(), in[2].toTensor(), in[3].toInt(),
                               kOpGroup);
           }},
      {.op = "penstock::all_to_all_rows",
       .draw = DrawCollective([](int ranks, int rank) {
         return Arguments{InGroups(RowsTo(ranks, rank)), InGroups(RowsFrom(ranks, rank)), -1};
       }),
       .reference = OfRank(UnevenResult),
       .differentiable = {0},
       .no_shapes = "the number of its rows varies",
       .call =
           [](const Arguments& in) {
             return SendRows(in[0].toTensor(), in[1].toTensor(), in[2].toTensor(), kOpGroup);
           },
       .variant = "_that_vary"},
      {.op = "penstock::broadcast",
       .draw = draw_root,
       .reference = OfRank(
           [](const Ranks& ranks, std::size_t) { return Inputs(ranks)[RootOf(ranks)].clone(); }),
       .differentiable = {0}},
      {.op = "penstock::reduce",
       .draw = draw_root,
       .reference = OfRank([](const Ranks& ranks, std::size_t rank) {
         return Sum(ranks) * (rank == RootOf(ranks) ? 1 : 0);
       }),
       .differentiable = {0}},
  };
}

}  // namespace penstock::testing
