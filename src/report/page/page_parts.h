// Parts of a self-contained page, in the style of page.css.
#pragma once

#include <span>
#include <string>

#include "report/report.h"

namespace penstock {

// From <!DOCTYPE> to the header with title and subtitle, inside the body. `more` is HTML for the
// <head>.
std::string PageStart(const std::string& title, const std::string& subtitle,
                      const std::string& more = "");
// A titled box around the HTML `inside`.
std::string CardHtml(const std::string& title, const std::string& inside);
// The figures side by side; nothing if there are none.
std::string FiguresHtml(std::span<const KeyFigure> figures);
// Without the table's title.
std::string TableHtml(const Table& table);

}  // namespace penstock
