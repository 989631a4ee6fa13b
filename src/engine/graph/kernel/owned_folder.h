// OwnedFolder: a folder whose files no other user can have written.
//
// A process runs the code of the libraries that it loads, so another user must not be able to write
// them. Opening a folder or reading a file fails unless this user owns it and no other user may
// write it. The folder stays open, so that paths lead to the checked folder even if it is replaced.
// Threads: any.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace penstock {

class OwnedFolder {
 public:
  // Opens the folder. Creates it and its missing parents with mode 0700. Errors: kUnavailable, also
  // if another user owns the folder or may write it.
  static Result<OwnedFolder> Open(const std::string& path);
  // Creates a folder in $TMPDIR, else /tmp. The destructor removes it and its files.
  static Result<OwnedFolder> MakeTemporary();

  ~OwnedFolder();
  OwnedFolder(OwnedFolder&& other) noexcept;
  OwnedFolder& operator=(OwnedFolder&&) = delete;

  const std::string& path() const { return path_; }
  // Returns a path of the file that is valid in this process while this object lives.
  std::string PathOf(const std::string& name) const;
  // Returns the content of a regular file that this user owns and no other user may write, or
  // nullopt if there is no such file.
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
