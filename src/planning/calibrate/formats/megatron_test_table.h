#pragma once

namespace penstock {

// The text of megatron_tests.txt.
extern const char* const kMegatronTests;

}  // namespace penstock
