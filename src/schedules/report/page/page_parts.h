// Parts of a self-contained page, in the style of page.css.
#pragma once

#include <span>
#include <string>

#include "report/report.h"

namespace penstock {

// From <!DOCTYPE> to the header with title and subtitle, inside the main part.
std::string PageStart(const std::string& title, const std::string& subtitle);
// Closes what PageStart opens. `footer` is plain text, `more` HTML after it.
std::string PageEnd(std::string_view footer, const std::string& more = "");
// A titled box around the HTML `inside`.
std::string CardHtml(const std::string& title, const std::string& inside);
std::string TableCard(const std::string& title, const Table& table);
std::string PlotCard(const Plot& plot);
// The sizes of a chart, of which the page shows the one that fits.
std::string SizesHtml(const std::string& pictures);
// What scrolls can be focused, so that keys scroll it.
std::string ScrollHtml(std::string_view title, const std::string& inside);
// The figures side by side; nothing if there are none.
std::string FiguresHtml(std::span<const KeyFigure> figures);
// Without its title, which only screen readers show: a card or text next to the table has it too.
std::string TableHtml(const Table& table, std::string_view title);
// Preformatted text in a scrolling box.
std::string TextHtml(std::string_view text, std::string_view title);

}  // namespace penstock
