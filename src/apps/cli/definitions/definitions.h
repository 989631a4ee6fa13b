// The commands that penstock-engine runs, as both programs know them: names, options and help.
// penstock answers --help, man and completion with them, in milliseconds, because loading libtorch
// takes 0.2 s. penstock-engine derives a class from each, which runs it.
#pragma once

#include <string>
#include <vector>

#include "cli/command/command.h"
#include "train/train.h"

namespace penstock {

// A command whose Run() is in penstock-engine.
class EngineDefinition : public Command {
 public:
  bool IsOfEngine() const override { return true; }
  Result<int> Run() override;
};

// A command of penstock-engine, which has these options.
template <class Definition>
class EngineRun : public Definition {
 public:
  bool IsOfEngine() const final { return false; }
};

class TrainDefinition : public EngineDefinition {
 public:
  std::string Name() const override { return "train"; }
  std::string Summary() const override {
    return "Train a model over pipeline ranks; writes files to runs/NAME";
  }
  void Define(CLI::App& app) override;
  std::vector<HelpGroup> MoreHelp() const override;
  std::string ExitCodes() const override;

 protected:
  // Returns the overrides of the configuration as key=value, the ones that win last.
  std::vector<std::string> AllOverrides() const;

  std::string config_;
  bool json_ = false;

 private:
  void Override(const std::string& key, const std::string& value);

  std::vector<std::string> overrides_;
  std::vector<std::string> options_;  // as key=value
  bool has_csv_ = false;
  bool has_schedule_ = false;
};

class GenerateDefinition : public EngineDefinition {
 public:
  std::string Name() const override { return "generate"; }
  std::string Summary() const override { return "Generate text with a trained model"; }
  void Define(CLI::App& app) override;

 protected:
  std::string checkpoint_;
  GenerateOptions options_;
  bool json_ = false;
};

class EvalDefinition : public EngineDefinition {
 public:
  std::string Name() const override { return "eval"; }
  std::string Summary() const override { return "Compute the held-out loss of a trained model"; }
  void Define(CLI::App& app) override;

 protected:
  std::string checkpoint_;
  std::string data_;
  std::int64_t sequence_ = 0;  // chosen by the model
  bool json_ = false;
  std::string device_ = "cpu";
  bool ema_ = false;
};

class GraphDefinition : public EngineDefinition {
 public:
  std::string Name() const override { return "graph"; }
  std::string Summary() const override { return "Print the graphs of a model's stage"; }
  void Define(CLI::App& app) override;

 protected:
  std::string config_;
  std::vector<std::string> overrides_;
  int stage_ = 0;
  std::string only_;
  std::string stop_after_;
  std::vector<std::string> disabled_;
  bool inexact_ = false;
  bool shapes_only_ = false;
  bool timing_ = false;
  bool dot_ = false;
  bool json_ = false;
};

class CompileDefinition : public EngineDefinition {
 public:
  std::string Name() const override { return "compile"; }
  std::string Summary() const override {
    return "Write a model's compiled stages, for 'penstock train ... compiled=FOLDER'";
  }
  void Define(CLI::App& app) override;

 protected:
  std::string config_;
  std::vector<std::string> overrides_;
  std::string folder_;
  bool json_ = false;
};

class ProfileDefinition : public EngineDefinition {
 public:
  std::string Name() const override { return "profile"; }
  std::string Summary() const override {
    return "Measure a model's layers on this machine, for 'penstock simulate --machine'";
  }
  void Define(CLI::App& app) override;

 protected:
  std::string config_;
  std::vector<std::string> overrides_;
  std::string path_;
  int rounds_ = 5;
  bool json_ = false;
};

class CheckDeviceDefinition : public EngineDefinition {
 public:
  std::string Name() const override { return "check-device"; }
  std::string Summary() const override { return "Compare training on a device with the CPU"; }
  void Define(CLI::App& app) override;

 protected:
  std::string device_;
  bool json_ = false;
};

class ExportDefinition : public EngineDefinition {
 public:
  std::string Name() const override { return "export"; }
  std::string Summary() const override { return "Write a trained model in Hugging Face's format"; }
  void Define(CLI::App& app) override;

 protected:
  std::string checkpoint_;
  std::string folder_;
  bool ema_ = false;
};

}  // namespace penstock
