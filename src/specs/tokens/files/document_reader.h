// DocumentReader: the documents of text files and of JSONL files.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

struct DocumentOptions {
  std::string separator;  // a line that separates the documents of a text file; empty: none
  std::string jsonl_key = "text";  // of the text in each line of a file *.jsonl
};

// Reads one file after another. Threads: one at a time.
class DocumentReader {
 public:
  DocumentReader(std::vector<std::string> files, DocumentOptions options)
      : files_(std::move(files)), options_(std::move(options)) {}

  // Sets `document` to the next one, which is not empty. Returns false after the last one. Errors:
  // kNotFound, or kInvalidArgument with the file and the line.
  Result<bool> Next(std::string& document);

  std::uint64_t bytes() const { return bytes_; }  // read so far

 private:
  // Reads from the open file. Returns false at its end.
  Result<bool> NextInFile(std::string& document);
  Result<bool> NextLine(std::string& document);
  bool NextSeparated(std::string& document);
  Status OpenNext();

  std::vector<std::string> files_;
  DocumentOptions options_;
  std::size_t next_ = 0;  // file
  std::ifstream stream_;
  bool open_ = false;
  bool is_jsonl_ = false;
  std::uint64_t line_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace penstock
