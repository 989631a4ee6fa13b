#include "report/palette.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "report/paper.h"

namespace penstock {
namespace {

using Vector = std::array<double, 3>;

Vector Linear(Color color) {
  const auto part = [](std::uint8_t value) {
    const double share = value / 255.0;
    return share <= 0.04045 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
  };
  return {part(color.red), part(color.green), part(color.blue)};
}

Vector Times(const std::array<Vector, 3>& matrix, const Vector& vector) {
  Vector product{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) product[i] += matrix[i][j] * vector[j];
  }
  return product;
}

// What eyes see: Machado, Oliveira and Fernandes 2009, without one kind of cone, in linear RGB.
constexpr std::array<Vector, 3> kNormal = {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
constexpr std::array<Vector, 3> kProtanopia = {{{0.152286, 1.052583, -0.204868},
                                                {0.114503, 0.786281, 0.099216},
                                                {-0.003882, -0.048116, 1.051998}}};
constexpr std::array<Vector, 3> kDeuteranopia = {{{0.367322, 0.860646, -0.227968},
                                                  {0.280085, 0.672501, 0.047413},
                                                  {-0.011820, 0.042940, 0.968881}}};
constexpr std::array<Vector, 3> kTritanopia = {{{1.255528, -0.076749, -0.178779},
                                                {-0.078411, 0.930809, 0.147602},
                                                {0.004733, 0.691367, 0.303900}}};

Vector Lab(const Vector& linear) {
  constexpr std::array<Vector, 3> kToXyz = {{{0.4124564, 0.3575761, 0.1804375},
                                             {0.2126729, 0.7151522, 0.0721750},
                                             {0.0193339, 0.1191920, 0.9503041}}};
  constexpr Vector kWhite = {0.95047, 1, 1.08883};
  Vector f = Times(kToXyz, linear);
  for (std::size_t i = 0; i < 3; ++i) {
    const double share = std::max(0.0, f[i]) / kWhite[i];
    f[i] = share > 216.0 / 24389 ? std::cbrt(share) : (24389.0 / 27 * share + 16) / 116;
  }
  return {116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])};
}

// CIE94 for graphics: about 1 is the least difference that eyes notice side by side.
double Difference(Color a, Color b, const std::array<Vector, 3>& eyes) {
  const Vector x = Lab(Times(eyes, Linear(a))), y = Lab(Times(eyes, Linear(b)));
  const double chroma = std::hypot(x[1], x[2]), other = std::hypot(y[1], y[2]);
  const double light = x[0] - y[0], saturation = chroma - other;
  const double hue = std::sqrt(
      std::max(0.0, std::pow(x[1] - y[1], 2) + std::pow(x[2] - y[2], 2) - saturation * saturation));
  return std::hypot(light, saturation / (1 + 0.045 * chroma), hue / (1 + 0.015 * chroma));
}

TEST(Palette, ComputeActionsDifferForAllEyes) {
  constexpr double kClear = 15, kClearLighter = 8;
  constexpr std::array kOps = {Op::kForward, Op::kBackwardInput, Op::kBackwardWeight,
                               Op::kBackward};
  for (const auto& eyes : {kNormal, kProtanopia, kDeuteranopia, kTritanopia}) {
    for (int chunk = 0; chunk < 4; ++chunk) {
      for (const Op a : kOps) {
        for (const Op b : kOps) {
          if (a >= b) continue;
          EXPECT_GT(Difference(BlockColor(a, chunk, 4), BlockColor(b, chunk, 4), eyes),
                    chunk == 0 ? kClear : kClearLighter)
              << OpName(a) << " and " << OpName(b) << " of chunk " << chunk;
        }
      }
    }
  }
}

TEST(Palette, TextIsReadableOnEveryBlock) {
  constexpr double kReadable = 4.5;  // WCAG 2, level AA
  for (std::size_t op = 0; op < kOpCount; ++op) {
    for (int chunk = 0; chunk < 8; ++chunk) {
      for (const auto color_of : {BlockColor, PaperBlockColor}) {
        const Color color = color_of(static_cast<Op>(op), chunk, 8);
        EXPECT_GE(Contrast(color, TextColor(color)), kReadable) << Hex(color);
      }
    }
  }
  for (int gray = 0; gray < 256; ++gray) {
    const auto part = static_cast<std::uint8_t>(gray);
    const Color color = {part, part, part};
    EXPECT_GE(Contrast(color, TextColor(color)), kReadable) << gray;
  }
  EXPECT_NEAR(Contrast({}, {255, 255, 255}), 21, 1e-9);
}

}  // namespace
}  // namespace penstock
