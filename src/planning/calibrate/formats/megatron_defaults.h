// What readers of rows of Megatron-LM and its relatives share.
#pragma once

#include <string>
#include <string_view>

#include "calibrate/formats/format.h"

namespace penstock {

// The columns of a GPT's sizes.
struct GptColumns {
  std::string_view layers, hidden, heads, sequence;
  int vocabulary = 0;
};
// Sets the sizes of a GPT with learned positions, feed-forward layers of four times its width and a
// tied head, as Megatron-LM's are by default.
Status SetGptSizes(const CsvRow& row, const GptColumns& columns, RunTexts& texts);

// "4x8"; a single node has only the devices that are used.
std::string NodesOf(int devices, int devices_per_node);

// Returns the replicas of `ranks` ranks each. Errors: kInvalidArgument about `column`, which has
// the devices, if they are no multiple.
Result<int> ReplicasOf(const CsvRow& row, std::string_view column, int devices, int ranks);

// Sets a number of ranks that has an effect.
void SetUnlessOne(std::string_view field, int value, RunTexts& texts);

}  // namespace penstock
