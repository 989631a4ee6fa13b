// Style and script of the HTML report, embedded from page.css and page.js at build time.
#pragma once

namespace penstock {

extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace penstock
