// The words that name schedules, distinguished by their form:
//
//   1f1b  zb-h1,zbv     algorithms of the catalog
//   interleaved:v=4     with fields of their own (own_fields.h)
//   mine.csv            a CSV file
//   dumps/1f1b          a folder of Primus's pp_rank_N.json
//   traces              a folder of Chrome traces, one per rank; or one trace, a.json
//   config.yaml         a configuration (read_file.h)
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "scenario/scenario.h"

namespace penstock {

struct ReadWords {
  std::vector<Candidate> candidates;
  std::string config;  // empty if there is none
};

// Errors: kInvalidArgument for two configurations and for files with other endings; kNotFound for a
// path that does not exist.
Result<ReadWords> ReadCandidates(const std::vector<std::string>& words);

}  // namespace penstock
