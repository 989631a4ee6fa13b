// The commands that need libtorch. They form a second program, penstock-engine, which replaces the
// process of penstock: loading libtorch takes 0.2 s, which the other commands avoid.
#pragma once

#include <array>

namespace penstock {

struct EngineEntry {
  const char* name;
  const char* summary;
};

inline constexpr EngineEntry kTrainEntry = {
    "train", "Train a model over pipeline ranks; writes files to runs/NAME"};
inline constexpr EngineEntry kGenerateEntry = {"generate", "Generate text with a trained model"};
inline constexpr EngineEntry kEvalEntry = {"eval", "Compute the held-out loss of a trained model"};
inline constexpr EngineEntry kGraphEntry = {"graph", "Print the graphs of a model's stage"};
inline constexpr EngineEntry kCompileEntry = {
    "compile", "Write a model's compiled stages, for 'penstock train ... compiled=FOLDER'"};

inline constexpr EngineEntry kExportEntry = {"export",
                                             "Write a trained model in Hugging Face's format"};

inline constexpr std::array kEngineEntries = {kTrainEntry, kGenerateEntry, kEvalEntry,
                                              kGraphEntry, kCompileEntry,  kExportEntry};

}  // namespace penstock
