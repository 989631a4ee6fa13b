#include "report/paper.h"

#include <array>

#include "base/index.h"

namespace penstock {
namespace {

// From F, the brightest, to B.
Color PaperBase(Op op) {
  switch (op) {
    case Op::kForward:
      return {0xc4, 0xdd, 0xf6};
    case Op::kBackwardWeight:
      return {0xe3, 0xa8, 0x5c};
    case Op::kBackwardInput:
      return {0x2f, 0x87, 0x96};
    case Op::kBackward:
      return {0x1c, 0x55, 0x3f};
    default:
      return BlockColor(op, 0, 1);
  }
}

Color Gray(int level) {
  const auto part = static_cast<std::uint8_t>(level);
  return {part, part, part};
}

}  // namespace

Color PaperBlockColor(Op op, int chunk, int chunks) {
  constexpr double kLightest = 0.3;
  return ChunkColor(PaperBase(op), chunk, chunks, kLightest);
}

Color MemoryColor(MemoryKind kind) {
  static constexpr std::array<Color, kMemoryKinds> kColors = {{{0x7f, 0x8e, 0xa3},
                                                               {0xb3, 0xbd, 0xca},
                                                               {0x4f, 0x9a, 0x94},
                                                               {0x5c, 0x74, 0xa8},
                                                               {0x9c, 0x84, 0xe2},
                                                               {0xe0, 0x8a, 0x3c},
                                                               {0x4a, 0xa3, 0xdb},
                                                               {0xc8, 0x74, 0xbe},
                                                               {0xc4, 0xb0, 0x8f},
                                                               {0xa8, 0x8a, 0x74},
                                                               {0xd6, 0xd0, 0xc4},
                                                               {0x6b, 0x6f, 0x76}}};
  return kColors[Index(kind)];
}

Color PaperMemoryColor(MemoryKind kind) {
  return Gray(80 + 20 * static_cast<int>(Index(kind) * 3 % 8));
}

}  // namespace penstock
