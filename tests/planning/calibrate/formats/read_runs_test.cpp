#include "calibrate/formats/read_runs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"

namespace penstock {
namespace {

constexpr const char* kVtrain =
    "gpus,global_batch,micro_batch,hidden,heads,layers,sequence,tensor,data,pipeline,iteration_"
    "ms\n";
constexpr const char* kBridge =
    "release,task,model,system,gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp,ep,tok_s_gpu,"
    "tflops_gpu\n";
constexpr const char* kTests =
    "test,platform,iter_s_median,mem_max_bytes,num-layers,hidden-size,num-attention-heads,"
    "seq-length,micro-batch-size,global-batch-size,tensor-model-parallel-size,"
    "pipeline-model-parallel-size,num-layers-per-virtual-pipeline-stage,bf16,"
    "use-distributed-optimizer,transformer-impl,pipeline-model-parallel-layout\n";
constexpr const char* kAceso =
    "gpu,system,model,config,measured_iter_ms,max_alloc_MB_seen,stages_seen,layers,hidden,heads,"
    "seq,gbs,mbs,pp,gpus_per_stage,gpus,recompute,tp_first_op,dp_first_op\n";
constexpr const char* kNemo =
    "model,seq,tp,pp,cp,ep,mbs,gbs,gpus,time_per_step_s,model_tflops_gpu\n";

class ReadRunsTest : public testing::Test {
 protected:
  MeasuredRuns Read(const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(path_, text));
    auto runs = ReadMeasuredRuns(path_);
    EXPECT_TRUE(runs) << runs.error().line();
    return runs ? *std::move(runs) : MeasuredRuns();
  }
  MeasuredRun ReadOne(const std::string& text) {
    MeasuredRuns runs = Read(text);
    if (!runs.refused.empty()) ADD_FAILURE() << runs.refused.front().reason;
    return runs.runs.empty() ? MeasuredRun() : std::move(runs.runs.front());
  }
  std::string Reason(const std::string& text) {
    const MeasuredRuns runs = Read(text);
    EXPECT_EQ(runs.runs.size(), 0u);
    return runs.refused.empty() ? "" : runs.refused.front().reason;
  }

  std::string path_ = testing::TempDir() + "runs_" + std::to_string(getpid()) + ".csv";
};

TEST_F(ReadRunsTest, VtrainOfOneNodeRecomputesNothing) {
  const MeasuredRun run = ReadOne(std::string(kVtrain) + "4,16,4,2048,16,24,1024,1,2,2,410.5\n");
  const Scenario& scenario = run.scenario;
  EXPECT_EQ(scenario.model, "gpt");
  EXPECT_EQ(scenario.layers, 24);
  EXPECT_EQ(scenario.hidden, 8192);
  EXPECT_EQ(scenario.nodes, "1x4");
  EXPECT_EQ(scenario.microbatches, 2);
  EXPECT_EQ(scenario.data, 2);
  EXPECT_EQ(scenario.ranks, 2);
  EXPECT_EQ(scenario.recompute, std::nullopt);
  EXPECT_DOUBLE_EQ(*run.step_time, 0.4105);
  EXPECT_EQ(scenario.schedules.front().name, "1f1b");
  EXPECT_EQ(ValueOf(run, "samples"), "16");
}

TEST_F(ReadRunsTest, VtrainOfSeveralNodesRecomputesEverything) {
  const MeasuredRun run =
      ReadOne(std::string(kVtrain) + "64,512,8,3072,32,30,2048,2,32,1,3975.2\n");
  EXPECT_EQ(run.scenario.nodes, "8x8");
  EXPECT_EQ(run.scenario.recompute, "full");
  EXPECT_EQ(run.scenario.zero, 1);
  EXPECT_EQ(run.usual.implementation, "megatron");
  EXPECT_EQ(run.scenario.implementation, std::nullopt);  // a user may set another
}

TEST_F(ReadRunsTest, MegatronBridgeRowsHaveTheirRecipes) {
  const MeasuredRun run = ReadOne(
      std::string(kBridge) +
      "26.08,Pre-Training,DeepSeekV3,DGX-GB300,256,MXFP8,4096,1,4096,0,1,2,1,8,32,6288,1635\n");
  const Scenario& scenario = run.scenario;
  EXPECT_EQ(scenario.model, "deepseek-v3");
  EXPECT_EQ(scenario.device, "gb300");
  EXPECT_EQ(scenario.nodes, "64x4");
  EXPECT_EQ(scenario.precision, "mxfp8");
  EXPECT_EQ(scenario.release, "2026-08");
  EXPECT_EQ(scenario.chunks, 8);
  EXPECT_EQ(scenario.expert, 32);
  EXPECT_EQ(scenario.microbatches, 32);
  EXPECT_EQ(scenario.predictors, 1);
  EXPECT_EQ(scenario.cuda_graphs, "full");
  EXPECT_EQ(scenario.layout, "4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,1");
  EXPECT_EQ(scenario.schedules.front().name, "interleaved");
  EXPECT_EQ(run.tokens_per_second_per_device, 6288);
}

// Et|(tt|)*30mL
TEST_F(ReadRunsTest, MegatronBridgesLastStageMayHaveOnlyTheLoss) {
  const MeasuredRun run =
      ReadOne(std::string(kBridge) +
              "25.09,Pre-Training,DeepSeekV3 (dropless),DGX-H100,1024,FP8,8192,1,4096,0,2,8,1,4,64,"
              "1297,338 (330)\n");
  std::string layout = "1";
  for (int stage = 1; stage < 31; ++stage) layout += ",2";
  EXPECT_EQ(run.scenario.layout, layout + ",0");
}

TEST_F(ReadRunsTest, OfTwoValuesInACellTheFirstCounts) {
  const MeasuredRun run =
      ReadOne(std::string(kBridge) +
              "25.09,Pre-Training,LLAMA3_70B,DGX-GB200,64,FP8-CS (FP8-MX),128,2,8192,64 (0),1 (2),"
              "1 (4),1,1 (5),n/a,3541 (3475),1602\n");
  EXPECT_EQ(run.scenario.precision, "fp8");
  EXPECT_EQ(run.scenario.zero, 3);
  EXPECT_EQ(run.scenario.offloaded_layers, 40);
  EXPECT_EQ(run.scenario.ranks, 1);
  EXPECT_EQ(run.tokens_per_second_per_device, 3541);
}

TEST_F(ReadRunsTest, MegatronTestsKnowTheirArguments) {
  const MeasuredRun run = ReadOne(
      std::string(kTests) +
      "gpt/gpt3_mcore_te_tp1_pp4_vp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_param_"
      "gather,dev_dgx_gb200,0.111,2466227200,12,512,8,1024,4,32,1,4,1,true,true,"
      "transformer_engine,\n");
  EXPECT_EQ(run.scenario.device, "gb200");
  EXPECT_EQ(run.scenario.chunks, 3);
  EXPECT_EQ(run.scenario.data, 2);
  EXPECT_EQ(run.scenario.vocabulary, 50304);
  EXPECT_EQ(run.scenario.zero, 1);
  EXPECT_EQ(run.peak_of, MeasuredRun::PeakOf::kLast);
  EXPECT_EQ(run.peak_bytes, 2466227200);
}

TEST_F(ReadRunsTest, AcesoStagesHaveDevicesOfTheirOwn) {
  const MeasuredRun run =
      ReadOne(std::string(kAceso) +
              "a10g,aceso,gpt 2_6B,c,25150.69,18099.26,4,32,2560,32,2048,64,2,3,"
              "1/2/1,4,T/T/F,1/1/1,1/2/1\n");
  EXPECT_EQ(run.scenario.stage_tensor, "1,1,1");
  EXPECT_EQ(run.scenario.stage_data, "1,2,1");
  EXPECT_EQ(run.scenario.stage_recompute, "full,full,none");
  EXPECT_EQ(run.scenario.microbatches, 32);
  EXPECT_DOUBLE_EQ(*run.peak_bytes, 18099.26 * 1024 * 1024);
}

TEST_F(ReadRunsTest, NemoAssumesADeviceThatTheUserMayReplace) {
  MeasuredRun run =
      ReadOne(std::string(kNemo) + "llama 8B,8192,4,1,2,1,1,1024,128,23.6156,145.21\n");
  EXPECT_EQ(run.usual.device, "a100");
  EXPECT_EQ(run.usual.attention, "flash");
  EXPECT_EQ(run.scenario.device, std::nullopt);
  EXPECT_EQ(run.scenario.context, 2);
  EXPECT_EQ(run.scenario.data, 16);
}

TEST_F(ReadRunsTest, RefusalsNameTheColumn) {
  EXPECT_EQ(Reason(std::string(kVtrain) + "4,15,4,2048,16,24,1024,1,2,2,410.5\n"),
            "global_batch '15': 2 replicas of microbatches of 4 samples do not divide it");
  EXPECT_NE(Reason(std::string(kVtrain) + "4,16,4,2048,16,24,1024,1,2,2,\n").find("iteration_ms"),
            std::string::npos);
  EXPECT_NE(
      Reason(std::string(kBridge) + "26.08,Pre-Training,DeepSeekV9,DGX-GB300,256,MXFP8,4096,1,"
                                    "4096,0,1,2,1,8,32,6288,1\n")
          .find("model 'DeepSeekV9'"),
      std::string::npos);
  EXPECT_NE(
      Reason(std::string(kTests) + "gpt/gpt3_15b_8t_release,dev_dgx_h100,1,1,32,6144,48,4096,4,"
                                   "1,8,2,8,true,true,transformer_engine,\n")
          .find("the number of GPUs of release tests is not public"),
      std::string::npos);
  EXPECT_NE(
      Reason(std::string(kAceso) + "a10g,aceso,g,c,25150,18099,4,32,2560,32,2048,64,2,3,1/2,4,"
                                   "T/T/F,1/1,1/2\n")
          .find("tp_first_op '1/1': 3 stages are needed"),
      std::string::npos);
}

}  // namespace
}  // namespace penstock
