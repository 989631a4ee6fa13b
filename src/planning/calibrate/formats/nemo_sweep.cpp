// A sweep of NeMo: Llama 3 8B on 128 GPUs. Their type is not stated. The rows reach 228 TFLOP/s,
// and constants of A100s that other tables determine fit them, so A100s are assumed. These
// constants are those of `megatron`; what NeMo's layers fuse besides is given.
#include "base/text/quote.h"
#include "calibrate/formats/format.h"
#include "calibrate/formats/megatron_defaults.h"

namespace penstock {

Result<RunTexts> ReadNemoRow(const CsvRow& row) {
  RunTexts texts;
  if (row.Text("model") != "llama 8B") {
    return RefuseCell(row, "model", "only the sizes of llama 8B are known");
  }
  texts.Set("model", "llama-3-8b");
  PENSTOCK_TRY(const int gpus, row.Count("gpus"));
  PENSTOCK_TRY(const int tensor, row.Count("tp"));
  PENSTOCK_TRY(const int pipeline, row.Count("pp"));
  PENSTOCK_TRY(const int context, row.Count("cp"));
  PENSTOCK_TRY(const int micro_batch, row.Count("mbs"));
  PENSTOCK_TRY(const int sequence, row.Count("seq"));
  PENSTOCK_TRY(const int data, ReplicasOf(row, "gpus", gpus, tensor * pipeline * context));
  PENSTOCK_TRY(const int microbatches, MicrobatchesOf(row, "gbs", micro_batch, data));
  texts.usual = {{"device", "a100"},
                 {"implementation", "megatron"},
                 {"attention", "flash"},
                 {"fused_loss", "true"},
                 {"network_efficiency", "0.5"}};
  texts.Set("nodes", NodesOf(gpus, 8));
  texts.Set("sequence", sequence);
  texts.Set("ranks", pipeline);
  SetUnlessOne("tensor", tensor, texts);
  SetUnlessOne("context", context, texts);
  texts.Set("data_parallel", data);
  if (data > 1) texts.Set("zero", 1);
  texts.Set("micro_batch_size", micro_batch);
  texts.Set("microbatches", microbatches);
  PENSTOCK_TRY(texts.step_time, row.Positive("time_per_step_s"));
  return texts;
}

}  // namespace penstock
