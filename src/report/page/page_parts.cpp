#include "report/page/page_parts.h"

#include "report/markup.h"
#include "report/page/page_assets.h"

namespace penstock {

std::string PageStart(const std::string& title, const std::string& subtitle,
                      const std::string& more) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n{}"
      "<title>{} - Penstock</title>\n<style>\n{}</style></head>\n<body>\n"
      "<header><h1>{}</h1><div class=\"subtitle\">{}</div></header>\n",
      more, EscapeMarkup(title), kPageStyle, EscapeMarkup(title), EscapeMarkup(subtitle));
}

std::string TableHtml(const Table& table) {
  const std::vector<bool> figures = FigureColumns(table);
  const auto cell = [&](const char* tag, std::size_t column, const std::string& text,
                        bool best = false) {
    const bool right = column < figures.size() && figures[column];
    const char* const style = right && best ? R"( class="right best")"
                              : right       ? R"( class="right")"
                              : best        ? R"( class="best")"
                                            : "";
    return fmt::format("<{}{}>{}</{}>", tag, style, EscapeMarkup(text), tag);
  };
  std::string html = R"(<div class="scroll"><table><thead><tr>)";
  for (std::size_t i = 0; i < table.columns.size(); ++i) html += cell("th", i, table.columns[i]);
  html += "</tr></thead><tbody>";
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    html += "<tr>";
    for (std::size_t i = 0; i < table.rows[row].size(); ++i) {
      html += cell("td", i, table.rows[row][i], table.best.contains({row, i}));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>";
}

std::string CardHtml(const std::string& title, const std::string& inside) {
  return fmt::format("<section class=\"card\"><h2>{}</h2>{}</section>\n", EscapeMarkup(title),
                     inside);
}

std::string FiguresHtml(std::span<const KeyFigure> figures) {
  std::string html;
  for (const KeyFigure& figure : figures) {
    html += fmt::format(
        R"(<div class="figure"><div class="name">{}</div><div class="value">{}</div>)"
        R"(<div class="note">{}</div></div>)"
        "\n",
        EscapeMarkup(figure.name), EscapeMarkup(figure.value), EscapeMarkup(figure.note));
  }
  return html.empty() ? html : "<div class=\"figures\">\n" + html + "</div>\n";
}

}  // namespace penstock
