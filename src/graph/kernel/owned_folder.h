// OwnedFolder: a folder whose files nobody but this user can have written.
//
// Code that is loaded from a file runs with all rights of the process, so whoever can write the
// file controls the process. A folder is accepted only if this user owns it and nobody else may
// write it; the same holds for each file in it. The folder stays open: paths lead to the folder
// that was checked even if somebody replaces it. Threads: any.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace penstock {

class OwnedFolder {
 public:
  // Creates the folder and its missing parents with mode 0700. Errors: kUnavailable, also if
  // somebody else owns the folder or may write it.
  static Result<OwnedFolder> Open(const std::string& path);
  // Creates a folder in $TMPDIR, else /tmp. The destructor removes it with its files.
  static Result<OwnedFolder> MakeTemporary();

  ~OwnedFolder();
  OwnedFolder(OwnedFolder&& other) noexcept;
  OwnedFolder& operator=(OwnedFolder&&) = delete;

  const std::string& path() const { return path_; }
  // Returns the path of the file, valid in this process while the folder object lives.
  std::string PathOf(const std::string& name) const;
  // Returns the content of a regular file that this user owns and nobody else may write, or nullopt
  // if there is no such file.
  std::optional<std::string> Read(const std::string& name) const;
  // Writes the file atomically. Errors: kUnavailable.
  Status Write(const std::string& name, std::string_view content) const;

 private:
  OwnedFolder(std::string path, int descriptor, bool temporary)
      : path_(std::move(path)), descriptor_(descriptor), temporary_(temporary) {}

  std::string path_;
  int descriptor_;
  bool temporary_;
};

}  // namespace penstock
