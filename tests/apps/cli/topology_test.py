"""Links and transfers of `penstock simulate`."""
import json

import program

TOPOLOGY = """
ranks: 8
microbatches: 16
message_bytes: 8MiB
topology:
  - {level: node, ranks: 4, latency: 0.1, bandwidth: 80MiB}
  - {level: site, latency: 0.1, bandwidth: 80MiB}
"""


class TopologyTest(program.CommandTest):
    def makespan(self, *words):
        return json.loads(self.run_ok("simulate", *words, "--json"))["schedules"][0]["makespan"]

    def config(self, text):
        (self.folder / "links.yaml").write_text(text)
        return "links.yaml"

    def test_links_without_contention_are_latency_and_bandwidth(self):
        config = self.config(TOPOLOGY)
        for schedule in ("1f1b", "gpipe"):
            self.assertAlmostEqual(self.makespan(schedule, config),
                                   self.makespan(schedule, "-p", 8, "-m", 16, "--comm", 0.2), 9)

    def test_slower_links_of_a_site_cost_time(self):
        config = self.config(TOPOLOGY)
        fast = self.makespan("1f1b", config)
        for change in ("bandwidth: 8MiB", "latency: 3, bandwidth: 80MiB"):
            slow = self.config(TOPOLOGY.replace("site, latency: 0.1, bandwidth: 80MiB", f"site, {change}"))
            self.assertGreater(self.makespan("1f1b", slow), fast + 1)

    def test_transfers(self):
        times = [self.makespan(f"interleaved:transfers={how}", "-p", 4, "-m", 8, "--comm", 0.2)
                 for how in ("asynchronous", "blocking", "batched")]
        self.assertEqual(times, sorted(times))
        self.assertLess(times[0], times[1])

    def test_launches_price_splitting(self):
        def at(schedule):
            return self.makespan(schedule, "-p", 4, "-m", 32, "--launch", 0.2)
        self.assertAlmostEqual(at("1f1b"), self.makespan("1f1b", "-p", 4, "-m", 32) + 35 * 0.4, 9)
        self.assertGreater(at("zb-h1") - self.makespan("zb-h1", "-p", 4, "-m", 32), 32 * 0.6 - 1e-9)

    def test_a_slow_rank(self):
        self.assertGreaterEqual(self.makespan("1f1b", "-p", 4, "-m", 16, "--slow-rank", "2=2"), 16 * 6)
        self.assertEqual(self.makespan("1f1b", "-p", 4, "-m", 16, "--slow-rank", "2=1"),
                         self.makespan("1f1b", "-p", 4, "-m", 16))

    def test_searches_see_slow_ranks_and_launches(self):
        shape = ("-p", 4, "-m", 12)
        slow = ("--slow-rank", "1=1.5", "--launch", 0.1)
        self.run_ok("schedule", "v-auto", *shape, "-o", "even.csv")
        self.run_ok("schedule", "v-auto", *shape, *slow, "-o", "uneven.csv")
        self.assertNotEqual((self.folder / "even.csv").read_text(), (self.folder / "uneven.csv").read_text())
        self.assertLess(self.makespan("uneven.csv", *slow), self.makespan("even.csv", *slow) - 0.1)

    def test_ranks_that_share_links_to_the_slower_pool(self):
        # Every rank offloads what it holds, and no RELOAD can wait for a link.
        self.run_ok("schedule", "gpipe", "-p", 4, "-m", 8, "--price", "offload=0.5", "--pass", "offload", "-o", "own.csv")
        price = ("--price", "offload=0.5")
        own = self.makespan("own.csv", *price)
        self.assertEqual(self.makespan("own.csv", *price, "--offload-sharing", 1), own)
        self.assertGreater(self.makespan("own.csv", *price, "--offload-sharing", 4), own)
        config = self.config("schedule: gpipe\nranks: 4\nmicrobatches: 8\nprice: offload=0.5\npass: offload\n"
                             "offload_sharing: 2\n")
        self.assertEqual(self.makespan(config), own)
        for words in (("--run",), ("--dump", "d")):
            self.assertIn("offload_sharing", self.refuse("simulate", config, *words))
        for count in (0, 5):
            self.assertIn(f"--offload-sharing {count}", self.refuse("simulate", "own.csv", *price, "--offload-sharing", count))
        self.assertIn("--pass offload", self.refuse("simulate", "1f1b", "--offload-sharing", 2))

    def test_outputs_that_differ_in_size(self):
        stages = "schedule: gpipe\nranks: 3\nmicrobatches: 1\nmessage_bytes: 8MiB\nstage_costs:\n" \
                 "  - {message_scale: 0.5}\n  - {message_scale: 3}\n  - {}\n"
        links = "topology: [{level: node, bandwidth: 16MiB}]\n"
        (row,) = self.run_rows("simulate", self.config(stages + links))
        self.assertAlmostEqual(row["makespan"], 3 * 3 + 2 * (0.25 + 1.5), 9)
        self.assertEqual(row["bytes_per_microbatch"], 2 * 3.5 * 2 ** 23)
        # Layers of a stage: only the output of the last one leaves it.
        layers = stages.replace("stage_costs", "layer_costs").replace("  - {}", "  - {}\n  - {message_scale: 7}")
        layers = layers.replace("ranks: 3", "ranks: 2")
        (row,) = self.run_rows("simulate", self.config(layers + links))
        self.assertEqual(row["bytes_per_microbatch"], 2 * 3 * 2 ** 23)
        self.run_ok("simulate", self.config(stages), "--dump", "d")
        (again,) = self.run_rows("simulate", "d/gpipe")
        self.assertEqual(again["bytes_per_microbatch"], 2 * 3.5 * 2 ** 23)
        for scale in ("-1", "x", 1e7):
            config = self.config(stages.replace("scale: 3", f"scale: {scale}"))
            self.assertIn("links.yaml: line 7: message_scale", self.refuse("simulate", config))
        config = self.config(stages.replace("message_bytes: 8MiB\n", ""))
        self.assertIn("links.yaml: line 4: stage_costs: message_scale", self.refuse("simulate", config))

    def test_refusals(self):
        for text, says in (("levle: node", "level"), ("level: node, ranks: 0", "ranks"), ("level: node, ranks: 4", "8"),
                           ("level: node, latency: -1", "latency"), ("level: node, bandwidth: 0", "bandwidth"),
                           ("level: node, links: sharde", "shared"), ("level: node, duplex: semi", "half"),
                           ("ranks: 8", "level"), ("level: bus, links: shared", "bus"), ("level: node, bandwidth: 1MiB", "line 2: topology")):
            config = self.config(f"ranks: 8\ntopology:\n  - {{{text}}}\n")
            self.assertIn(says, self.refuse("simulate", "1f1b", config), text)
        config = self.config("ranks: 8\ntopology: [{level: node}]\n")
        self.assertIn("topology", self.refuse("simulate", "1f1b", config, "--comm", 1))
        for words in (("--run",), ("--dump", "d")):
            self.assertIn("topology", self.refuse("simulate", "1f1b", config, *words))
        for words in (("--slow-rank", "4=2"), ("--slow-rank", "1=0"), ("--slow-rank", "1=1000000000000000000000"), ("--slow-rank", "1"), ("--launch", "-1"),
                      ("--transfers", "bached"), ("--slow-rank", "1=2", "--slow-rank", "1=3")):
            self.assertIn(words[0], self.refuse("simulate", "1f1b", "-p", 4, *words))


if __name__ == "__main__":
    program.main()
