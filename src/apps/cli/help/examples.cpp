#include "cli/help/examples.h"

#include <algorithm>
#include <iterator>

namespace penstock {
namespace {

constexpr Example kExamples[] = {
    {"", "penstock simulate 1f1b zb-h1 zbv -p 8 -m 32", "Compare three schedules"},
    {"", "penstock show zbv -p 4 -m 8", "Draw one in the terminal"},
    {"", "penstock train examples/english.yaml", "Train a small model on this machine"},

    {"schedules", "penstock schedules", "List all schedules"},
    {"schedules", "penstock schedules 1f1b zbv -p 8 -m 32",
     "Their closed forms and simulated figures"},
    {"schedules", "penstock schedules --passes", "List the passes and prices"},

    {"schedule", "penstock schedule zbv -p 4 -m 8 -o zbv.csv", "Write a schedule as CSV"},
    {"schedule", "penstock schedule 1f1b --pass recompute --lower",
     "Print one with all communication"},
    {"schedule", "penstock schedule interleaved -v 2 --torch -o a.csv",
     "Write what torch.distributed.pipelining reads"},

    {"validate", "penstock validate mine.csv", "Check a schedule of your own"},
    {"validate", "penstock validate zbv -p 4 -m 8 --json", "Print the faults for programs"},

    {"simulate", "penstock simulate 1f1b zb-h1 zbv -p 8 -m 32", "Compare three schedules"},
    {"simulate", "penstock simulate 1f1b zbv --model llama-3-70b --device h100",
     "Price a model on real devices"},
    {"simulate", "penstock simulate 1f1b --sweep ranks=4,8 comm=0,0.5", "Vary two options"},
    {"simulate", "penstock simulate 1f1b --run --unit 5ms",
     "Execute the schedule on emulated devices, too"},

    {"show", "penstock show zbv -p 4 -m 8", "Draw a timeline"},
    {"show", "penstock show 1f1b --explain", "Say why ranks are idle"},

    {"diff", "penstock diff 1f1b zb-h1 -p 8 -m 32", "Say what one schedule does otherwise"},
    {"diff", "penstock diff 1f1b gpipe --moves 5", "List the actions that moved farthest"},

    {"report", "penstock report 1f1b zb-h1 -p 4 -m 8 -o a.html", "Write a page with timelines"},
    {"report", "penstock report zbv -o zbv.svg", "Write a picture"},

    {"plan", "penstock plan --model llama-3-8b --nodes 1x8 --global-batch 64",
     "Find how to train a model on 8 devices"},
    {"plan", "penstock plan -p 8 -m 32 --comm 0.2 --memory-limit 6 -o best.csv",
     "Find the best schedule for a memory limit"},
    {"calibrate", "penstock calibrate runs.csv", "Compare predictions with measured runs"},
    {"calibrate", "penstock calibrate runs.csv --fit auto -o machine.yaml",
     "Fit constants of the machine, which --machine then reads"},

    {"train", "penstock train examples/english.yaml", "Train a small model"},
    {"train", "penstock train my.yaml --schedule zbv --ranks 4 steps=200",
     "Override keys of the configuration"},
    {"train", "penstock train my.yaml --resume auto checkpoint.every=500",
     "Continue from the newest checkpoint"},

    {"watch", "penstock watch english", "Follow runs/english until it ends"},
    {"watch", "penstock watch english --page english.html", "Write a page, too"},
    {"watch", "penstock watch english --json", "Print the present figures for programs"},

    {"checkpoint", "penstock checkpoint english", "List the checkpoints of runs/english"},
    {"checkpoint", "penstock checkpoint english --verify", "Read them and verify all checksums"},
    {"checkpoint", "penstock checkpoint english --merge model.safetensors",
     "Write the newest as one file"},

    {"generate", "penstock generate english --prompt \"The \"", "Continue a text"},
    {"generate", "penstock generate english --temperature 0", "Take the likeliest tokens"},

    {"eval", "penstock eval english", "The held-out loss of runs/english"},
    {"eval", "penstock eval MODEL-FOLDER --data text.txt", "The loss of a model from elsewhere"},

    {"export", "penstock export english -o exported", "Write a folder that transformers reads"},

    {"check-device", "penstock check-device cuda", "What to run first on a new device"},

    {"profile", "penstock profile my.yaml -o machine.yaml", "Measure the model's layers here"},
    {"compile", "penstock compile my.yaml -o stages", "Compile the stages ahead of a run"},

    {"graph", "penstock graph my.yaml --stage 1 --graph forward", "Print the forward of a stage"},
    {"graph", "penstock graph my.yaml --timing", "How long each pass takes"},

    {"tokenize", "penstock tokenize a.txt --tokenizer tokenizer.json -o data",
     "Write a text as tokens"},
    {"tokenize", "penstock tokenize *.jsonl --tokenizer MODEL-FOLDER -o data",
     "Each line of the files is a document"},

    {"launch", "penstock launch --restarts 3 -- penstock train my.yaml",
     "Start a run again if it fails"},
    {"launch", "penstock launch -- mpirun -n 4 penstock train my.yaml ranks=4",
     "A run on several processes"},

    {"completion", "source <(penstock completion bash)", "Complete words in this shell"},

    {"man", "penstock man simulate | man -l -", "Read a page"},
    {"man", "penstock man --directory pages", "Write all pages"},
};

}  // namespace

std::vector<Example> ExamplesOf(std::string_view command) {
  std::vector<Example> examples;
  std::ranges::copy_if(kExamples, std::back_inserter(examples),
                       [&](const Example& each) { return each.command == command; });
  return examples;
}

}  // namespace penstock
