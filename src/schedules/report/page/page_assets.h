// Style and scripts of the HTML report, embedded from page.css and the .js files at build time.
#pragma once

namespace penstock {

extern const char* const kSite;  // without a slash at its end; may be empty
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace penstock
