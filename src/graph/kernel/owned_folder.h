// OwnedFolder: a folder whose files nobody but this user can have written.
//
// Code that is loaded from a file runs with all rights of the process, so who can write the file
// owns the process. A folder is accepted where this user owns it and nobody else may write it, and
// a file in it where the same holds for the file. The folder stays open: paths lead to what was
// checked even where somebody puts another folder in its place. Threads: any.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace penstock {

class OwnedFolder {
 public:
  // Creates the folder and those above it with mode 0700 where they are missing. Errors:
  // kUnavailable, also where somebody else owns the folder or may write it.
  static Result<OwnedFolder> Open(const std::string& path);
  // A new one in $TMPDIR, else /tmp, which is removed with its files when the object goes.
  static Result<OwnedFolder> MakeTemporary();

  ~OwnedFolder();
  OwnedFolder(OwnedFolder&& other) noexcept;
  OwnedFolder& operator=(OwnedFolder&&) = delete;

  const std::string& path() const { return path_; }
  // The file's path, valid in this process while the folder lives.
  std::string PathOf(const std::string& name) const;
  // The content of a regular file that this user owns and nobody else may write; none where there
  // is no such file.
  std::optional<std::string> Read(const std::string& name) const;
  // The file has the old content or the new, never a part. Errors: kUnavailable.
  Status Write(const std::string& name, std::string_view content) const;

 private:
  OwnedFolder(std::string path, int descriptor, bool temporary)
      : path_(std::move(path)), descriptor_(descriptor), temporary_(temporary) {}

  std::string path_;
  int descriptor_;
  bool temporary_;
};

}  // namespace penstock
