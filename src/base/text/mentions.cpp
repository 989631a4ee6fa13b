#include "base/text/mentions.h"

namespace penstock {

std::string SpellMentions(std::string_view text, const Spelling& spelling) {
  std::string replaced;
  while (true) {
    const std::size_t begin = text.find('`');
    const std::size_t end = begin == text.npos ? text.npos : text.find('`', begin + 1);
    if (end == text.npos) return replaced += text;
    replaced += text.substr(0, begin);
    replaced += spelling(text.substr(begin + 1, end - begin - 1));
    text.remove_prefix(end + 1);
  }
}

}  // namespace penstock
