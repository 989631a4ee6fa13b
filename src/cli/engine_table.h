// The commands that need libtorch. They are a program of their own, penstock-engine, which penstock
// runs in its place: loading libtorch takes a fifth of a second, which the other commands need not
// wait for.
#pragma once

#include <array>

namespace penstock {

struct EngineEntry {
  const char* name;
  const char* summary;
};

inline constexpr EngineEntry kTrainEntry = {
    "train", "Train a model over pipeline ranks; files go to runs/NAME"};
inline constexpr EngineEntry kGenerateEntry = {"generate", "Write text with a trained model"};
inline constexpr EngineEntry kEvalEntry = {"eval", "Held-out loss of a trained model"};
inline constexpr EngineEntry kGraphEntry = {"graph", "Print the graphs of a model's stage"};
inline constexpr EngineEntry kCompileEntry = {
    "compile",
    "Write a model's compiled stages; 'penstock train ... compiled=DIR' starts from them"};

inline constexpr std::array kEngineEntries = {kTrainEntry, kGenerateEntry, kEvalEntry, kGraphEntry,
                                              kCompileEntry};

}  // namespace penstock
