// The functions of the module, for the page's scripts (page/module.js).
#include <cstddef>
#include <string>

#include "playground/playground.h"

namespace {
std::string question, answer;
}  // namespace

extern "C" {

// Returns the memory for a question of so many bytes.
char* penstock_memory(std::size_t bytes) {
  question.resize(bytes);
  return question.data();
}

// Answers it. Returns the answer, which ends with a zero byte, and is valid until the next call.
const char* penstock_ask() {
  answer = penstock::playground::Ask(question);
  return answer.c_str();
}
}
