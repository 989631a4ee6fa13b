// The arguments that name the schedules of a command, distinguished by their form:
//
//   1f1b  zb-h1,zbv     algorithms of the catalog
//   interleaved:v=4     with its own options (candidate_options.h)
//   mine.csv            a CSV file
//   dumps/1f1b          a folder of Primus's pp_rank_N.json
//   traces              a folder of Chrome traces, one per rank; or one trace, a.json
//   config.yaml         a configuration (simulate_config.h)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/options/candidate_options.h"

namespace penstock {

// One schedule that a command prices, draws or writes.
struct Candidate {
  enum class Kind { kAlgorithm, kFile };
  Kind kind = Kind::kAlgorithm;
  std::string name;               // of the algorithm, or the path of the file or folder
  CandidateOptions options = {};  // override the command's
  std::string written = {};       // as the user wrote it, if it has options

  const std::string& label() const { return written.empty() ? name : written; }
};

struct ReadWords {
  std::vector<Candidate> candidates;
  std::string config;  // empty if there is none
};

// Errors: kInvalidArgument for two configurations and for files with other endings; kNotFound for a
// path that does not exist.
Result<ReadWords> ReadCandidates(const std::vector<std::string>& words);

}  // namespace penstock
