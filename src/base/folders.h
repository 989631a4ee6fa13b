// Folders and links of users, which Penstock neither replaces nor removes.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// Creates a folder and its missing parents. Appends each created folder to `created`, also on
// failure, parents first. Errors: kInvalidArgument, naming the part of the path that is in the way:
// a file, or a link to what does not exist, such as a disk that is not mounted.
Status CreateFolders(const std::string& path, std::vector<std::string>* created = nullptr);
// Removes these folders, innermost first, unless they are not empty or no longer folders.
void RemoveFolders(const std::vector<std::string>& created);

// Returns where a file of this path is to be written: the path itself, or what it links to, so that
// a rename does not replace the link. Errors: kInvalidArgument if that does not exist.
Result<std::string> FollowLink(const std::string& path);

}  // namespace penstock
