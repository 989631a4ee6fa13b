#include "config/train_config.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/files.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"

namespace penstock {
namespace {

std::string ErrorOf(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const auto config = ParseTrainConfig(yaml, "a.yaml", overrides);
  if (config) return "";
  EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(config.error().line().find('\n'), std::string::npos);
  return config.error().line();
}

TEST(Config, OverridesWinOverTheFile) {
  const auto config = ValueOf(ParseTrainConfig(
      "name: first\nmodel: {dim: 64, layers: 6}\npipeline:\n  ranks: auto\n  stage_layers: [4, "
      "2]\n",
      "a.yaml", {"model.dim=32", "steps=7", "name=second", "stage_layers=1,5", "ranks=2"}));
  EXPECT_EQ(config.model.dim, 32);
  EXPECT_EQ(config.model.layers, 6);
  EXPECT_EQ(config.steps, 7);
  EXPECT_EQ(config.name, "second");
  EXPECT_EQ(config.pipeline.ranks, 2);
  EXPECT_EQ(config.pipeline.stage_layers, (std::vector<std::int64_t>{1, 5}));
}

// As --csv and --schedule of `penstock train` do.
TEST(Config, AnOverrideReplacesTheScheduleOfAFile) {
  for (const char* const key : {"csv", "pipeline.csv"}) {
    for (const char* const yaml : {"pipeline: {schedule: 1f1b}\n",
                                   "pipeline:\n  schedule: {name: interleaved, group: 4}\n"}) {
      const auto config = ParseTrainConfig(yaml, "a.yaml", {std::string(key) + "=y.csv"});
      ASSERT_TRUE(config) << config.error().line();
      EXPECT_EQ(config->pipeline.csv, "y.csv");
      EXPECT_EQ(config->pipeline.schedule, "auto");
    }
  }
  const auto config =
      ParseTrainConfig("pipeline: {csv: x.csv}\n", "a.yaml", {"pipeline.schedule=zbv"});
  ASSERT_TRUE(config) << config.error().line();
  EXPECT_EQ(config->pipeline.csv, "");
  EXPECT_EQ(config->pipeline.schedule, "zbv");
}

TEST(Config, ReadsTheModelFromAConfigJson) {
  const TempFolder folder;
  const std::string path = folder / "config.json";
  ASSERT_TRUE(WriteFileAtomically(path, R"({"model_type": "qwen3", "vocab_size": 100,
      "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 16,
      "num_key_value_heads": 4, "intermediate_size": 48})"));
  const auto expect = [](const Result<TrainConfig>& config, std::int64_t sequence) {
    ASSERT_TRUE(config) << config.error().line();
    EXPECT_EQ(config->model.name, "qwen3");
    EXPECT_EQ(config->model.layers, 3);
    EXPECT_EQ(config->model.sequence, sequence);
    EXPECT_EQ(config->model.options.at("head_dim"), "16");
  };
  expect(ParseTrainConfig("model: " + path, "a.yaml", {"sequence=20"}), 20);
  // An override replaces the file's section, except for the length of a sequence.
  const auto replaced = ParseTrainConfig(
      "model: {dim: 8, layers: 9, dropout: 0.5, sequence: 30}\npipeline: {ranks: auto}\nsteps: 5",
      "a.yaml", {"model=" + path});
  expect(replaced, 30);
  EXPECT_EQ(replaced->steps, 5);
  EXPECT_EQ(ParseTrainConfig("seed: 4", "a.yaml", {"model=" + path, "layers=2"})->model.layers, 2);
  EXPECT_EQ(ErrorOf("steps: 3\nmodel: [1]"),
            "a.yaml: line 2: model: a map or the path of a config.json is needed");
  EXPECT_TRUE(
      Refused(ParseTrainConfig("", "a.yaml", {"model=" + (folder / "no.json")}), "no.json"));
}

TEST(Config, TheSeedIsAlsoTheModels) {
  EXPECT_EQ(ParseTrainConfig("seed: 9", "a.yaml")->model.seed, 9U);
}

TEST(Config, FormerNamesKeepWorking) {
  const auto former = ParseTrainConfig("pipeline: {cuts: 2}\n", "c.yaml", {"cut_lengths=[40,24]"});
  const auto current =
      ParseTrainConfig("pipeline: {slices: 2}\n", "c.yaml", {"slice_lengths=[40,24]"});
  ASSERT_TRUE(former) << former.error().line();
  ASSERT_TRUE(current);
  EXPECT_EQ(ToYaml(*former), ToYaml(*current));
}

TEST(Config, PrintedYamlReadsBackUnchanged) {
  const std::vector<std::string> odd = {"data.path=a \"b\": #c\\d",
                                        "optimizer.lr=0.00012345678901",
                                        "stage_layers=2,1,1",
                                        "chunks=2",
                                        "exact=false",
                                        "pipeline.csv=x.csv"};
  const auto config = ValueOf(ParseTrainConfig("", "none", odd));
  const std::string text = ToYaml(config);
  const auto again = ParseTrainConfig(text, "printed");
  ASSERT_TRUE(again) << again.error().line() << text;
  EXPECT_EQ(ToYaml(*again), text);
  EXPECT_EQ(again->data.path, "a \"b\": #c\\d");
  EXPECT_EQ(again->optimizer.lr, 0.00012345678901);
  EXPECT_EQ(again->pipeline.ranks, 0);
}

TEST(Config, ChangedKeysGiveTheSameConfiguration) {
  const std::vector<std::string> given = {"model.name=gpt2", "data.path=a b", "seed=7",
                                          "model.heads=8",   "chunks=2",      "precision=f32"};
  const auto config = ValueOf(ParseTrainConfig("", "none", given));
  const std::vector<std::string> changed = ChangedKeys(config);
  EXPECT_EQ(changed.front(), "model.name=gpt2");
  EXPECT_LT(changed.size(), given.size());  // without precision, which has its default
  EXPECT_EQ(ToYaml(ValueOf(ParseTrainConfig("", "none", changed))), ToYaml(config));
}

TEST(Config, ReadsBytesWithAUnit) {
  EXPECT_EQ(*ParseSavedBytes("1.5MiB"), 3 << 19);
  EXPECT_EQ(*ParseSavedBytes("least"), 0);
  EXPECT_EQ(*ParseSavedBytes("all"), std::numeric_limits<std::int64_t>::max());
  EXPECT_TRUE(Contains(ErrorOf("recompute: {hold: some}"),
                       "recompute.hold: 'some' is none of: all, least"));
  EXPECT_TRUE(Contains(ErrorOf("recompute: {modules: norm}"), "recompute.modules"));
}

TEST(Config, ReadsTheSpeedOfALink) {
  ParallelConfig parallel;
  EXPECT_FALSE(LinkOf(parallel).value());
  parallel.link = "1.5GB/s 20us";
  EXPECT_EQ(LinkOf(parallel).value()->bytes_per_second, 1.5e9);
  EXPECT_DOUBLE_EQ(LinkOf(parallel).value()->latency, 20e-6);
  for (const char* bad : {"1GB", "1GB/s", "0B/s 1us", "1GB/s 1", "fast"}) {
    EXPECT_TRUE(Contains(ErrorOf(fmt::format("parallel: {{link: {}}}", bad)), "parallel.link: '"))
        << bad;
  }
}

TEST(Config, HasTheKeysOfTheConfiguredModel) {
  const auto config = ValueOf(
      ParseTrainConfig("model: {heads: 8, name: gpt2, tied: false}", "a.yaml", {"hidden=32"}));
  EXPECT_EQ(config.model.options.at("heads"), "8");
  EXPECT_EQ(config.model.options.at("hidden"), "32");
  EXPECT_EQ(config.model.options.at("tied"), "false");
  EXPECT_FALSE(Contains(ToYaml(config), "rope_theta"));
  EXPECT_TRUE(Contains(ToYaml(config), "  tied: false\n"));
  EXPECT_EQ(ErrorOf("model:\n  name: gpt2\n  rope_theta: 3\n"),
            "a.yaml: line 3: unknown key 'model.rope_theta': models llama, qwen3, mixtral, "
            "qwen3_moe, deepseek_v2, deepseek_v3 have it, and model.name is gpt2; set another one "
            "or remove the key");
  EXPECT_EQ(ErrorOf("model: {name: deepseek_v3, predictor: 1}", {"model.name=qwen3_moe"}),
            "a.yaml: line 1: unknown key 'model.predictor': models deepseek_v2, deepseek_v3 have "
            "it, and model.name is qwen3_moe; set another one or remove the key");
  EXPECT_TRUE(
      Contains(ErrorOf("", {"model.name=gpt2", "tie_word_embeddings=true"}), "'model.tied'"));
}

// Reading, printing and comparing need nothing but a key's declaration.
TEST(Config, PrintsReadsAndComparesEveryKey) {
  for (const std::string_view model : ModelNames()) {
    TrainConfig config;
    config.model.name = model;
    for (const ConfigKey& key : KeysOf(config)) {
      EXPECT_FALSE(key.help.empty()) << key.key;
      EXPECT_LE(key.help.size(), 100U) << key.key;
      EXPECT_TRUE(!key.of_model || key.changes >= Changes::kPrograms) << key.key;
      const std::string value =
          key.value.starts_with('"') ? key.value.substr(1, key.value.size() - 2) : key.value;
      const auto read = ParseTrainConfig(ToYaml(config), "a", {key.key + "=" + value});
      ASSERT_TRUE(read) << key.key << ": " << read.error().line();
      EXPECT_TRUE(DifferentKeys(*read, *ParseTrainConfig(ToYaml(config), "a")).empty()) << key.key;
    }
  }
}

TEST(Config, AScheduleMayHaveOptions) {
  const auto config = ValueOf(ParseTrainConfig(
      "pipeline:\n  schedule: {name: interleaved, group: 2, cost: '1,2,1'}\n  ranks: 2\n", "a"));
  EXPECT_EQ(config.pipeline.schedule, "interleaved");
  EXPECT_EQ(config.pipeline.group, 2);
  EXPECT_EQ(config.pipeline.cost, "1,2,1");
  EXPECT_EQ(ErrorOf("pipeline:\n  schedule:\n    name: hanayo\n    wave: 2\n"),
            "a.yaml: line 4: unknown key 'pipeline.wave': did you mean 'pipeline.waves'?");
}

TEST(Config, ErrorsNameTheLine) {
  const auto expect = [](const std::string& yaml, const std::string& message) {
    EXPECT_EQ(ErrorOf(yaml), message);
  };
  for (const char* ranks : {"0", "-4"}) {
    expect(fmt::format("pipeline: {{ranks: {}}}\n", ranks),
           fmt::format("a.yaml: line 1: pipeline.ranks: {} is out of range: at least 1, or 'auto'",
                       ranks));
  }
  expect("name: a\nsteps: 0\n", "a.yaml: line 2: steps: 0 is out of range: at least 1");
  expect("name: a\noptimizer:\n  lr: x\n", "a.yaml: line 3: optimizer.lr: 'x' is not a number");
  expect("name: a\nmodel:\n  dimm: 8\n",
         "a.yaml: line 3: unknown key 'model.dimm': did you mean 'model.dim'?");
  expect("\nmodel:\n  dim: 10\n  heads: 4\n",
         "a.yaml: line 3: model.dim 10 over 4 heads: each head needs an even, whole share");
  expect("precision: f64\n", "a.yaml: line 1: precision: 'f64' is not one of f32, bf16");
  expect("name: a\nsteps: 2\nsteps: 3\n", "a.yaml: line 3: 'steps' is given twice; give it once");
  expect("name: a\ndata: {path: \"b\\nc\"}\n",
         "a.yaml: line 2: data.path: 'b\\nc' has a control character or is not UTF-8");
  expect("steps: \"1\\n\"\n", "a.yaml: line 1: steps: '1\\n' is not a whole number");
  EXPECT_NE(ErrorOf("steps: &x {steps: *x}\n"), "");
  EXPECT_TRUE(Contains(ErrorOf("a: [\n"), "a.yaml: line 2"));
  EXPECT_TRUE(ErrorOf("name: a\n", {"model.name=lama"}).starts_with("model.name: no model"));
  EXPECT_EQ(ErrorOf("optimizer: {lr: 1}\n", {"lr=x"}), "optimizer.lr: 'x' is not a number");
}

TEST(Config, ReadsTheConfigurationOfARunWithAModelOfAnotherProgram) {
  const TempFolder folder;
  const std::string path =
      folder.Write("config.yaml", "name: a\nmodel: {name: mixer, layers: 6, decay: 0.7}\n");
  const auto config = ValueOf(LoadRunConfig(path));
  EXPECT_EQ(config.model.name, "mixer");
  EXPECT_EQ(config.model.layers, 6);
  EXPECT_EQ(config.model.options.at("decay"), "0.7");
  EXPECT_FALSE(LoadTrainConfig(path));
}

// A control character is no value of any kind.
TEST(Config, ErrorsAboutEveryKeyHaveItsLine) {
  for (const std::string_view model : ModelNames()) {
    TrainConfig config;
    config.model.name = model;
    for (const ConfigKey& key : KeysOf(config)) {
      if (key.key == "model.name") continue;
      const std::size_t dot = key.key.find('.');
      std::string yaml = fmt::format("model:\n  name: {}\n", model);
      if (dot == std::string::npos) {
        yaml += fmt::format("{}: \"\\x01\"\n", key.key);
      } else if (key.of_model || key.key.starts_with("model.")) {
        yaml += fmt::format("  {}: \"\\x01\"\n", key.key.substr(dot + 1));
      } else {
        yaml +=
            fmt::format("{}: {{{}: \"\\x01\"}}\n", key.key.substr(0, dot), key.key.substr(dot + 1));
      }
      const auto read = ParseTrainConfig(yaml, "a.yaml");
      ASSERT_FALSE(read) << yaml;
      EXPECT_EQ(read.error().parameter, key.key);
      EXPECT_EQ(read.error().where, "a.yaml: line 3") << key.key;
    }
  }
}

// Such an error has the line of the key that it is about, or of the other one if only that is
// given.
TEST(Config, ErrorsAboutSeveralKeysHaveALine) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"optimizer:\n  beta2: 1\n", "2", "optimizer.beta2 1: must be below 1"},
      {"model:\n  heads: 3\n", "2", "model.dim 128 over 3 heads"},
      {"\nmodel: {kv_heads: 3}\n", "2", "model.kv_heads 3 does not divide model.heads 4"},
      {"pipeline:\n  csv: a.csv\n  schedule: 1f1b\n", "3", "pipeline.schedule '1f1b'"},
      {"recompute:\n  hold: 3\n", "2", "recompute.hold: '3' is none of"},
      {"name: a\nmemory_limit: much\n", "2", "max_memory 'much'"},
      {"name: a\noptimizer: {groups: [{match: '('}]}\n", "2", "optimizer.groups: match"},
      {"name: a\nparallel: {link: slow}\n", "2", "parallel.link"}};
  for (const auto& [yaml, line, text] : cases) {
    const std::string error = ErrorOf(yaml);
    EXPECT_TRUE(error.starts_with(fmt::format("a.yaml: line {}: {}", line, text))) << error;
  }
  EXPECT_TRUE(ErrorOf("optimizer: {beta2: 0.5}\n", {"beta2=1"}).starts_with("optimizer.beta2 1"));
}

// 8,000 references to a text of 100,000 characters.
TEST(Config, RefusesAListOfReferencesWithoutCopies) {
  std::string yaml = "resume: &a " + std::string(100'000, '1') + "\ntrace_steps: [";
  for (int i = 0; i < 8000; ++i) yaml += "*a,";
  EXPECT_TRUE(ErrorOf(yaml + "1]\n").starts_with("a.yaml: line 2: trace_steps: '1111"));
}

TEST(Config, RefusesUnknownKeysAndNamesTheNearest) {
  EXPECT_TRUE(
      Contains(ErrorOf("model: {dimm: 3}"), "unknown key 'model.dimm': did you mean 'model.dim'"));
  EXPECT_TRUE(Contains(ErrorOf("", {"lerning.lr=3"}), "'optimizer.lr'"));
  EXPECT_TRUE(Contains(ErrorOf("", {"step=3"}), "'steps'"));
  EXPECT_TRUE(Contains(ErrorOf("dim: 3"), "unknown key 'dim'"));  // a file is exact
  EXPECT_NE(ErrorOf("", {"steps"}), "");
  EXPECT_NE(ErrorOf("", {"=3"}), "");
}

// Runs of earlier versions have the default of the key in their config.yaml.
TEST(Config, NamesTheCommandThatWritesEventFiles) {
  EXPECT_EQ(ErrorOf("tensorboard: false"), "");
  const std::string error =
      "unknown key 'tensorboard': 'python -m penstock.tensorboard RUN_FOLDER' writes event files";
  EXPECT_EQ(ErrorOf("tensorboard: true"), "a.yaml: line 1: " + error);
  EXPECT_EQ(ErrorOf("", {"tensorboard=true"}), error);
}

// Suggests keys of the same section, and keys that other frameworks call so.
TEST(Config, SuggestsTheIntendedKey) {
  const auto suggests = [](const char* written, const std::string& meant) {
    const std::string error = ErrorOf("", {std::string(written) + "=1"});
    EXPECT_TRUE(Contains(error, "did you mean '" + meant + "'?"));
  };
  suggests("learning_rate", "optimizer.lr");
  suggests("optimizer.learning-rate", "optimizer.lr");
  suggests("training.global_batch_size", "pipeline.microbatches");
  suggests("batch_size", "batch");
  suggests("max_steps", "steps");
  suggests("weight_decy", "optimizer.weight_decay");
  suggests("seq_len", "model.sequence");
  suggests("model.seqence", "model.sequence");
  suggests("modle.name", "model.name");
  suggests("pipeline.schedul", "pipeline.schedule");
  suggests("max_grad_norm", "optimizer.clip");
  suggests("reduce_dtype", "optimizer.gradient_dtype");
  // No key is similar, so the error lists the keys of the section.
  const std::string error = ErrorOf("", {"checkpoint.zzzzzzz=1"});
  EXPECT_EQ(error,
            "unknown key 'checkpoint.zzzzzzz': the keys are checkpoint.every, checkpoint.keep, "
            "checkpoint.best");
}

TEST(Config, RefusesInvalidValues) {
  for (const char* bad : {"steps=0",
                          "steps=many",
                          "steps=1.5",
                          "steps=",
                          "steps=99999999999999999999",
                          "lr=-1",
                          "lr=nan",
                          "lr=inf",
                          "model.dim=0",
                          "heads=3",
                          "model.name=lama",
                          "ranks=-1",
                          "batch=0",
                          "held_out=0.9",
                          "held_out=0",
                          "vocabulary=10",
                          "name=a/b",
                          "name=",
                          "name=..",
                          "beta2=1",
                          "stage_layers=1,x",
                          "microbatches=auto",
                          "seed=-1",
                          "exact=1",
                          "watchdog=1e300",
                          "epsilon=0",
                          "epsilon=1e-46",
                          "model.dim=1e18",
                          "max_memory=much",
                          "memory_limit=0B"}) {
    EXPECT_NE(ErrorOf("", {bad}), "") << bad;
  }
  EXPECT_NE(ErrorOf("", {"schedule=gpipe", "csv=x.csv"}), "");
}

TEST(Config, RefusesMalformedFiles) {
  for (const char* bad : {"a: [", "- 1\n- 2", "just text", "steps: [1, 2]", "steps: {a: 1}",
                          "steps:", "model: 3", "? {a: 1}\n: 2", "steps: &a [*a]"}) {
    EXPECT_NE(ErrorOf(bad), "") << bad;
  }
  EXPECT_TRUE(Refused(LoadTrainConfig("/nowhere/at/all.yaml"), "", ErrorCode::kNotFound));
}

}  // namespace
}  // namespace penstock
