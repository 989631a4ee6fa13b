// Ground truth of vTrain (github.com/VIA-Research/vTrain): GPT with a vocabulary of 51,200 on nodes
// of 8 A100 with 80 GB, by Megatron-DeepSpeed of 2022: fp16, 1F1B, distributed optimizer.
//
// Runs on several nodes recompute everything, also those with one stage: their sizes are those of
// Megatron-LM's Table 1 (Narayanan et al. 2021), and so is their throughput. Those on one node
// recompute nothing: with recomputation, their FLOPs would exceed the devices' peak. Nodes have 4
// ports of 200 Gbit/s (vTrain's inter_node_bandwidth), half of those of NVIDIA's A100 nodes.
#include "calibrate/formats/format.h"
#include "calibrate/formats/megatron_defaults.h"

namespace penstock {
namespace {

constexpr int kNodeDevices = 8;

}  // namespace

Result<RunTexts> ReadVtrainRow(const CsvRow& row) {
  RunTexts texts;
  PENSTOCK_TRY(const int gpus, row.Count("gpus"));
  PENSTOCK_TRY(const int data, row.Count("data"));
  PENSTOCK_TRY(const int tensor, row.Count("tensor"));
  PENSTOCK_TRY(const int pipeline, row.Count("pipeline"));
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
  texts.Set("nodes", NodesOf(gpus, kNodeDevices));
  texts.Set("precision", "fp16");
  texts.usual = {{"implementation", "megatron"}, {"network_efficiency", "0.5"}};
  // Those of one node add up all collectives, as Megatron-LM did before it overlapped them.
  texts.Set("release", gpus > kNodeDevices ? "2022-01" : "2021-01");
  texts.Set("dropout", "true");
  texts.Set("sequence_parallel", "false");
  if (gpus > kNodeDevices) texts.Set("recompute", "full");
  if (data > 1) texts.Set("zero", 1);
  texts.Set("micro_batch_size", micro_batch);
  texts.Set("microbatches", microbatches);
  texts.Set("data_parallel", data);
  texts.Set("tensor", tensor);
  texts.Set("ranks", pipeline);
  PENSTOCK_TRY(const double ms, row.Positive("iteration_ms"));
  texts.step_time = ms / 1e3;
  return texts;
}

}  // namespace penstock
