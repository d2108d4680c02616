// Packing of blockwise.h.
#include "ops/quantization/blockwise.h"

#include <algorithm>
#include <cstring>

namespace chairlift {
namespace {

class SourceReader {
 public:
  SourceReader(const BlockwiseShape& shape, const BlockwiseSource& source)
      : shape_(shape),
        source_(source),
        half_(1 << (shape.bits - 1)),
        zero_bytes_((shape.blocks() * shape.bits + 7) / 8) {}

  float Scale(int64_t n, int64_t b) const { return source_.scales[n * shape_.blocks() + b]; }
  float Shift(int64_t n, int64_t b) const {
    const float zero = source_.float_zeros != nullptr ? source_.float_zeros[n * shape_.blocks() + b]
                       : source_.packed_zeros != nullptr
                           ? static_cast<float>(Entry(source_.packed_zeros + n * zero_bytes_, b))
                           : static_cast<float>(half_);
    const float distance = static_cast<float>(half_) - zero;
    return distance == 0 ? 0 : distance * Scale(n, b);
  }
  // The words of the first `entries` codes of a block, each kGemmPanel after the previous one.
  void CopyCodes(int64_t n, int64_t b, int64_t entries, uint32_t* to) const {
    // Subtracts half of the range, to get signed numbers: this flips the highest bits.
    const uint32_t opposite = shape_.bits == 8 ? 0x80808080u : 0x88888888u;
    const int64_t bytes = shape_.block * shape_.bits / 8;
    const uint8_t* from = source_.codes + (n * shape_.blocks() + b) * bytes;
    for (int64_t bits = entries * shape_.bits; bits > 0; bits -= 32) {
      const uint32_t word = uint32_t{from[0]} | uint32_t{from[1]} << 8 | uint32_t{from[2]} << 16 |
                            uint32_t{from[3]} << 24;
      *to = (word ^ opposite) & (bits >= 32 ? ~0u : (1u << bits) - 1);
      from += 4;
      to += kGemmPanel;
    }
  }

 private:
  uint32_t Entry(const uint8_t* bytes, int64_t i) const {
    return shape_.bits == 8 ? bytes[i] : bytes[i / 2] >> (i % 2 * 4) & 15u;
  }

  const BlockwiseShape& shape_;
  const BlockwiseSource& source_;
  const uint32_t half_;
  const int64_t zero_bytes_;
};

}  // namespace

bool HasShifts(const BlockwiseShape& shape, const BlockwiseSource& source) {
  if (source.packed_zeros == nullptr && source.float_zeros == nullptr) return false;
  const SourceReader reader(shape, source);
  for (int64_t n = 0; n < shape.n; ++n) {
    for (int64_t b = 0; b < shape.blocks(); ++b) {
      if (reader.Shift(n, b) != 0) return true;
    }
  }
  return false;
}

void PackBlockwise(const BlockwiseSource& source, const BlockwiseWeights& like, uint32_t* words) {
  const BlockwiseShape& shape = like.shape;
  const bool shifted = like.shifted;
  const SourceReader reader(shape, source);
  const int64_t block_words = like.panel_words() / shape.blocks();
  uint32_t* at = words;
  for (int64_t column = 0; column < shape.n; column += kGemmPanel) {
    const int64_t columns = std::min(kGemmPanel, shape.n - column);
    for (int64_t b = 0; b < shape.blocks(); ++b) {
      const int64_t entries = std::min(shape.block, shape.k - b * shape.block);
      if (columns < kGemmPanel || entries < shape.block) std::fill_n(at, block_words, 0u);
      for (int64_t j = 0; j < columns; ++j) {
        const float scale = reader.Scale(column + j, b);
        std::memcpy(at + j, &scale, sizeof(scale));
        if (!shifted) continue;
        const float shift = reader.Shift(column + j, b);
        std::memcpy(at + kGemmPanel + j, &shift, sizeof(shift));
      }
      at += kGemmPanel * (shifted ? 2 : 1);
      for (int64_t j = 0; j < columns; ++j) reader.CopyCodes(column + j, b, entries, at + j);
      at += shape.block * shape.bits / 32 * kGemmPanel;
    }
  }
}

void BlockSums(const float* a, int64_t a_stride, int64_t rows, const BlockwiseShape& shape,
               float* sums) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t b = 0; b < shape.blocks(); ++b) {
      const float* from = a + r * a_stride + b * shape.block;
      float parts[8] = {};
      for (int64_t i = 0; i < shape.block; i += 8) {
        for (int j = 0; j < 8; ++j) parts[j] += from[i + j];
      }
      *sums++ = ((parts[0] + parts[4]) + (parts[1] + parts[5])) +
                ((parts[2] + parts[6]) + (parts[3] + parts[7]));
    }
  }
}

}  // namespace chairlift
