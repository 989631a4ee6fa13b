#include "report/page/page_parts.h"

#include "report/markup.h"
#include "report/page/page_assets.h"

namespace penstock {

std::string PageStart(const std::string& title, const std::string& subtitle) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{} - Penstock</title>\n<style>\n{}</style></head>\n<body><main>\n"
      "<header><h1>{}</h1><div class=\"subtitle\">{}</div></header>\n",
      EscapeMarkup(title), kPageStyle, EscapeMarkup(title), EscapeMarkup(subtitle));
}

std::string PageEnd(std::string_view footer, const std::string& more) {
  return fmt::format("</main>\n<footer>{}</footer>\n{}</body></html>\n", EscapeMarkup(footer),
                     more);
}

std::string ScrollHtml(std::string_view title, const std::string& inside) {
  return fmt::format(R"(<div class="scroll" tabindex="0" role="group" aria-label="{}">{}</div>)",
                     EscapeMarkup(title), inside);
}

std::string SizesHtml(const std::string& pictures) {
  return R"(<div class="sizes">)" + pictures + "</div>";
}

std::string TextHtml(std::string_view text, std::string_view title) {
  return fmt::format(R"(<pre tabindex="0" role="group" aria-label="{}">{}</pre>)",
                     EscapeMarkup(title), EscapeMarkup(text));
}

std::string TableHtml(const Table& table, std::string_view title) {
  const std::vector<bool> figures = FigureColumns(table);
  // `tag` is what it is the header of, "col" or "row", or kCell.
  constexpr std::string_view kCell = "td";
  const auto cell = [&](std::string_view tag, std::size_t column, const std::string& inside,
                        bool best = false) {
    const bool right = column < figures.size() && figures[column];
    const char* const style = right && best ? R"( class="right best")"
                              : right       ? R"( class="right")"
                              : best        ? R"( class="best")"
                                            : "";
    const bool header = tag != kCell && !inside.empty();
    return fmt::format("<{0}{1}{2}>{3}</{0}>", header ? "th" : kCell,
                       header ? fmt::format(R"( scope="{}")", tag) : "", style, inside);
  };
  std::string html =
      fmt::format(R"(<table><caption class="unseen">{}</caption><thead><tr>)", EscapeMarkup(title));
  for (std::size_t i = 0; i < table.columns.size(); ++i)
    html += cell("col", i, EscapeMarkup(table.columns[i]));
  html += "</tr></thead><tbody>";
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    html += "<tr>";
    for (std::size_t i = 0; i < table.rows[row].size(); ++i) {
      const std::string text = EscapeMarkup(table.rows[row][i]);
      const bool is_link = i == 0 && row < table.links.size();
      html += cell(i == 0 ? "row" : kCell, i,
                   is_link ? fmt::format(R"(<a href="{}">{}</a>)", table.links[row], text) : text,
                   table.best.contains({row, i}));
    }
    html += "</tr>\n";
  }
  return ScrollHtml(title, html + "</tbody></table>");
}

std::string CardHtml(const std::string& title, const std::string& inside) {
  return fmt::format("<section class=\"card\"><h2>{}</h2>{}</section>\n", EscapeMarkup(title),
                     inside);
}

std::string TableCard(const std::string& title, const Table& table) {
  return CardHtml(title, TableHtml(table, title));
}

std::string PlotCard(const Plot& plot) { return CardHtml(plot.title, SizesHtml(PlotSvg(plot))); }

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
