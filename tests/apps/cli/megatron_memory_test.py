"""Peaks of Megatron-LM's functional tests (github.com/NVIDIA/Megatron-LM), as simulations and as calibrate has them."""
import converted_tables
import program

COLUMNS = ("test,platform,iter_s_median,mem_max_bytes,num-layers,hidden-size,num-attention-heads,seq-length,"
           "micro-batch-size,global-batch-size,tensor-model-parallel-size,pipeline-model-parallel-size,"
           "expert-model-parallel-size,num-experts,moe-router-topk,sequence-parallel,use-distributed-optimizer,"
           "transformer-impl,bf16,deterministic-mode")
# What golden files say, of tests whose other arguments the program knows.
ROPE = ("gpt/gpt3_mcore_te_tp1_pp2_rope_embeddings,dev_dgx_a100,0.14395,3570001920,12,512,8,1024,4,32,1,2,,,,,,"
        "transformer_engine,true,true")
EXPERTS = ("moe/gpt3_mcore_te_tp1_pp2_resume_torch_dist_reshard_2x1x4_te_8experts2parallel_dist_optimizer,dev_dgx_a100,"
           "0.20905,2797671424,12,512,8,1024,4,32,1,2,2,8,1,,true,transformer_engine,true,")


class MegatronMemoryTest(program.CommandTest):
    def convert(self, *rows, columns=COLUMNS):
        self.write("tests.csv", "\n".join([columns, *rows]) + "\n")
        return converted_tables.convert([self.folder / "tests.csv"], self.folder / "out")

    def calibrate(self, *rows, columns=COLUMNS):
        self.convert(*rows, columns=columns)
        return self.run_json("calibrate", "out/tests.csv", "--rows")

    def test_arguments_of_tests_are_known(self):
        scores = self.calibrate(ROPE, EXPERTS)
        self.assertEqual(scores["memory"], {"rows": 2, "within_5": 1, "within_10": 1})
        self.assertEqual(scores["refused"], [])

    def test_a_simulation_has_the_same_peak(self):
        (predicted, *_) = self.calibrate(ROPE)["predictions"]
        (row,) = self.run_rows("simulate", "1f1b", "--model", "decoder", "--layers", 12, "--dim", 512, "--heads", 8,
                               "--hidden", 2048, "--vocabulary", 50304, "--gated=false", "--tied",
                               "--linear-biases", "--fp32-gradients", "--sequence", 1024, "--micro-batch-size", 4, "-p", 2, "--data-parallel", 4,
                               "-m", 2, "--device", "a100", "--implementation", "transformer-engine", "--attention",
                               "unfused", "--dropout", "--deterministic", "--attention-mask", "--memory",
                               "--release", "2025-10")
        self.assertAlmostEqual(row["memory"][-1]["peak"]["amount"] - row["memory"][-1]["peak"]["by_kind"]["context"],
                               predicted["peak_bytes"], delta=1)

    def test_columns_of_a_table_precede_what_is_known_of_a_test(self):
        unfused, flash = (self.calibrate(ROPE + "," + kernel, columns=COLUMNS + ",attention-backend")["predictions"][0]
                          for kernel in ("unfused", "flash"))
        self.assertGreater(unfused["peak_bytes"], 1.3 * flash["peak_bytes"])

    def test_what_cannot_be_expressed_is_refused(self):
        rows = [ROPE.replace("gpt/gpt3_mcore_te_tp1_pp2_rope_embeddings", test) for test in
                ("mimo/mimo_vlm", "bert/bert_mcore_tp1_pp2", "gpt/gpt3_15b_8t_release", "gpt/gpt_grpo_tp1tp2_pp1_dp8_583m_throughputtest",
                 "hybrid/hybrid_flextron_nightly_tp2_pp1_ep2_dgx_h100_1N8G", "gpt/gpt3_mcore_te_tp2_pp1_gdn")]
        said = self.convert(ROPE, *rows).splitlines()
        self.assertEqual(len(said), 7)
        for line, reason in enumerate(("decoders", "decoders", "number of GPUs", "perform-rl-step", "routers of widths", "delta nets")):
            self.assertRegex(said[line], f"line {line + 3} is left out: .*{reason}")


if __name__ == "__main__":
    program.main()
