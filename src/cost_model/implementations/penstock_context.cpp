#include "cost_model/implementations/penstock_context.h"

#include <algorithm>
#include <string_view>

#include "cost_model/rank_sizes.h"

namespace penstock {
namespace {

using enum ContextExchange;

// Numbers of a rank per token, of all of its heads.
struct AttentionWidths {
  double queries = 0, values = 0;
  double padded = 0;  // values, and results, as attention computes them
  double sent = 0;    // keys and values, as the ranks exchange them
};

AttentionWidths LatentWidths(const ModelShape& shape, const Microbatch& batch) {
  const LatentShape& latent = *shape.latent;
  const double heads = RankSizes(shape, batch).heads;
  const double queries = heads * static_cast<double>(latent.query_dim());
  const double values = heads * static_cast<double>(latent.value_dim);
  const double padded = std::max(queries, values);
  const bool sends_padding = batch.context_exchange == kRing;
  return {queries, values, padded, queries + (sends_padding ? padded : values)};
}

AttentionWidths PlainWidths(const ModelShape& shape, const Microbatch& batch) {
  const RankSizes sizes(shape, batch);
  const double queries = sizes.heads * sizes.head_dim;
  const double groups = batch.context_exchange == kUlysses
                            ? std::max(sizes.kv_heads, static_cast<double>(batch.context))
                            : sizes.kv_heads;
  return {queries, queries, queries, 2 * groups * sizes.head_dim};
}

AttentionWidths WidthsOf(const ModelShape& shape, const Microbatch& batch) {
  return shape.latent ? LatentWidths(shape, batch) : PlainWidths(shape, batch);
}

// The keys and values that a rank keeps of each token: those that it received, or copies for heads
// that share one of several.
double KeptWidth(const ModelShape& shape, const Microbatch& batch, const AttentionWidths& widths) {
  if (shape.latent) return widths.sent;
  const RankSizes sizes(shape, batch);
  const auto ranks = batch.context_exchange == kUlysses ? static_cast<double>(batch.context) : 1.0;
  const double groups = std::max(sizes.kv_heads / ranks, 1.0);
  return groups == 1 ? widths.sent : 2 * widths.queries;
}

// What a rank keeps of its own tokens to gather their keys and values again.
double GatheredAgainWidth(const ModelShape& shape, const AttentionWidths& widths) {
  if (shape.architecture == Architecture::kGpt2) return 0;  // it keeps them with the queries
  if (!shape.latent) return widths.sent;
  const LatentShape& latent = *shape.latent;
  const double heads = widths.values / static_cast<double>(latent.value_dim);
  return heads * static_cast<double>(latent.plain_dim + latent.value_dim) +
         static_cast<double>(latent.rotary_dim);
}

// Adds collectives over the ranks of `context`.
class Exchanges {
 public:
  Exchanges(const Microbatch& batch, Work& work)
      : ranks_(static_cast<double>(batch.context)),
        token_(batch.tokens() * batch.element_bytes()),
        work_(work) {}

  // `width` numbers of each of the rank's tokens go to all ranks, with `again` once more in I;
  // their gradients are added.
  void Gather(double width, bool again) {
    Add(work_.forward, width * token_ * (ranks_ - 1));
    for (int i = 0; i <= static_cast<int>(again); ++i) {
      Add(work_.backward_input, width * token_ * (ranks_ - 1));
    }
  }
  // Heads of queries, of keys and values, and of results go to the ranks that have them.
  void ExchangeHeads(double queries, double keys_and_values, double results) {
    for (const double width : {queries, keys_and_values, results}) {
      Add(work_.forward, width * token_ * (ranks_ - 1) / ranks_);
      Add(work_.backward_input, width * token_ * (ranks_ - 1) / ranks_);
    }
  }
  // The backward passes keys and values around again, and their gradients home.
  void PassAround(double width) {
    const int steps = static_cast<int>(ranks_) - 1;
    Add(work_.forward, steps * width * token_, steps);
    Add(work_.backward_input, (2 * steps + 1) * width * token_, 2 * steps + 1);
  }
  // Numbers in fp32 that F adds.
  void AllReduce(double numbers) {
    Add(work_.forward, 2 * numbers * kFp32ElementBytes * (ranks_ - 1) / ranks_);
  }

 private:
  static void Add(Kernels& kernels, double bytes, int calls = 1) {
    kernels.push_back({.name = "collective of `context`", .collectives = calls, .shared = bytes});
  }

  double ranks_, token_;
  Work& work_;
};

// Each of a rank's two blocks of queries attends to the blocks up to it. Of 2 C blocks, these are
// 2 C + 1 for the two of a rank. A ring skips what is masked in the last block of each; else masks
// do not save any work.
void SetBlocks(const Microbatch& batch, KernelCost& attention) {
  const auto ranks = static_cast<double>(batch.context);
  const double reach = 1 + static_cast<double>(batch.earlier) / static_cast<double>(batch.sequence);
  const double own = attention.flops / reach, unmasked = attention.flops - attention.skipped;
  const double scores = (2 * ranks + 1) / (4 * ranks);  // of those of all keys
  attention.flops = own * (scores + reach - 1);
  attention.skipped =
      batch.context_exchange == kRing ? std::max(0.0, attention.flops - unmasked) : 0;
  const double keys = ranks + 0.5 + 2 * ranks * (reach - 1);  // read, relative to the queries
  attention.bytes *= (1 + keys) / (1 + reach);
}

bool IsAttention(const KernelCost& kernel) { return (kernel.modules & kCoreAttention) != 0; }

}  // namespace

void SetContextWork(const ModelShape& shape, const Microbatch& batch, Work& work) {
  if (batch.context == 1) return;
  const auto is_exchange = [](const KernelCost& kernel) { return kernel.shared > 0; };
  if (std::erase_if(work.forward, is_exchange) == 0) return;
  std::erase_if(work.backward_input, is_exchange);
  Exchanges exchanges(batch, work);
  const AttentionWidths widths = WidthsOf(shape, batch);
  if (batch.context_exchange == kUlysses) {
    return exchanges.ExchangeHeads(widths.queries, widths.sent, widths.padded);
  }
  if (batch.context_exchange == kRing) {
    exchanges.PassAround(widths.sent);
  } else {
    exchanges.Gather(widths.sent, batch.gather_again);
  }
  for (Kernels* kernels : {&work.forward, &work.backward_input}) {
    for (KernelCost& kernel : *kernels) {
      if (IsAttention(kernel)) SetBlocks(batch, kernel);
    }
  }
}

void SetContextKept(const ModelShape& shape, const Microbatch& batch, KeptTensors& kept) {
  if (batch.context == 1) return;
  const AttentionWidths widths = WidthsOf(shape, batch);
  const bool pads = shape.latent && widths.values < widths.padded;
  const double token = batch.tokens() * batch.element_bytes();
  std::erase_if(kept, [](const KeptTensor& tensor) {
    return tensor.name == "attention: keys" || tensor.name == "attention: values" ||
           tensor.name == "attention: queries, keys and values";
  });
  const int modules = shape.latent ? kLatentUp : 0;
  const auto add = [&](std::string_view name, double width) {
    kept.push_back({name, Kept::kUntilInput, width * token, modules});
  };
  if (shape.architecture == Architecture::kGpt2) {
    // Queries are a view of the result of one matmul, unless they are exchanged.
    const bool is_view = batch.context_exchange != kUlysses;
    add("attention: queries", widths.queries + (is_view ? 2 * widths.values : 0));
  }
  if (batch.context_exchange == kRing) return add("attention: own keys and values", widths.sent);
  const bool gathers = batch.context_exchange == kAllGather;
  const bool again = gathers && batch.gather_again;
  const double tokens_of_others = gathers ? static_cast<double>(batch.context) : 1;
  if (again) {
    add("attention: own keys and values", GatheredAgainWidth(shape, widths));
  } else {
    add("attention: keys and values", tokens_of_others * KeptWidth(shape, batch, widths));
  }
  if (!pads) {
    add("attention: output before it is joined", widths.padded);
  } else if (!again) {
    add("attention: padded values", tokens_of_others * widths.padded);
  }
}

void AddContextLoad(const ModelShape& shape, const Microbatch& batch, Work& work) {
  if (batch.context == 1 || shape.experts->balance != ExpertShape::Balance::kLoss) return;
  Exchanges(batch, work).AllReduce(static_cast<double>(shape.experts->experts));
}

void AddContextLoss(const Microbatch& batch, Work& work) {
  if (batch.context > 1) Exchanges(batch, work).AllReduce(2);
}

}  // namespace penstock
