// Ground truth of vTrain (github.com/VIA-Research/vTrain): GPT with a vocabulary of 51,200 on nodes
// of 8 A100 with 80 GB: fp16, 1F1B, full recomputation, distributed optimizer.
#include "calibrate/formats/format.h"
#include "calibrate/formats/megatron_defaults.h"

namespace penstock {

Result<RunTexts> ReadVtrainRow(const CsvRow& row) {
  RunTexts texts;
  PENSTOCK_TRY(const int gpus, row.Count("gpus"));
  PENSTOCK_TRY(const int data, row.Count("data"));
  PENSTOCK_TRY(const int micro_batch, row.Count("micro_batch"));
  PENSTOCK_TRY(const int microbatches, MicrobatchesOf(row, "global_batch", micro_batch, data));
  PENSTOCK_TRY_STATUS(SetGptSizes(row,
                                  {.layers = "layers",
                                   .hidden = "hidden",
                                   .heads = "heads",
                                   .sequence = "sequence",
                                   .vocabulary = 51'200},
                                  texts));
  texts.Set("device", "a100");
  texts.Set("nodes", NodesOf(gpus, 8));
  texts.Set("precision", "fp16");
  texts.Set("implementation", "megatron");
  texts.Set("recompute", "full");
  texts.Set("zero", 1);
  texts.Set("micro_batch_size", micro_batch);
  texts.Set("microbatches", microbatches);
  texts.Set("data_parallel", data);
  PENSTOCK_TRY(const int tensor, row.Count("tensor"));
  texts.Set("tensor", tensor);
  PENSTOCK_TRY(const int pipeline, row.Count("pipeline"));
  texts.Set("ranks", pipeline);
  PENSTOCK_TRY(const double ms, row.Positive("iteration_ms"));
  texts.step_time = ms / 1e3;
  return texts;
}

}  // namespace penstock
