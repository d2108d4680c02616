// A parser of the wire format (protobuf.dev/programming-guides/encoding), three messages deep.
#include "graph/onnx/detach_weights.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace chairlift {
namespace {

// Field numbers of onnx.proto.
constexpr uint64_t kModelGraph = 7;
constexpr uint64_t kGraphInitializer = 5;
constexpr uint64_t kTensorRawData = 9;

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

struct Field {
  uint64_t number;
  uint64_t wire_type;
  int64_t begin;        // of the tag
  int64_t value_begin;  // after the tag, and after the length if there is one
  int64_t end;
};

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendMessage(uint64_t number, const std::string& message, std::string* out) {
  AppendVarint(number << 3 | kLengthDelimited, out);
  AppendVarint(message.size(), out);
  *out += message;
}

// Every function returns false if the file is not as expected or cannot be read: see status().
class Walk {
 public:
  Walk(int64_t file_bytes, int64_t min_bytes, DetachedWeights* weights)
      : file_bytes_(file_bytes), min_bytes_(min_bytes), weights_(*weights) {}

  bool Model(std::string* out) {
    return EachField(0, file_bytes_, [&](const Field& field) {
      if (!IsMessage(field, kModelGraph)) return Copy(field.begin, field.end, out);
      std::string graph;
      if (!Graph(field, &graph)) return false;
      AppendMessage(kModelGraph, graph, out);
      return true;
    });
  }
  const Status& status() const { return status_; }

 private:
  static bool IsMessage(const Field& field, uint64_t number) {
    return field.number == number && field.wire_type == kLengthDelimited;
  }

  bool Graph(const Field& graph, std::string* out) {
    return EachField(graph.value_begin, graph.end, [&](const Field& field) {
      if (!IsMessage(field, kGraphInitializer)) return Copy(field.begin, field.end, out);
      std::string tensor;
      if (!Initializer(field, &tensor)) return false;
      AppendMessage(kGraphInitializer, tensor, out);
      ++initializers_;
      return true;
    });
  }

  // If a field occurs twice, the last one counts.
  bool Initializer(const Field& tensor, std::string* out) {
    return EachField(tensor.value_begin, tensor.end, [&](const Field& field) {
      if (!IsMessage(field, kTensorRawData)) return Copy(field.begin, field.end, out);
      const int64_t bytes = field.end - field.value_begin;
      if (bytes >= min_bytes_) {
        weights_.ranges[initializers_] = {field.value_begin, bytes};
        return true;
      }
      weights_.ranges.erase(initializers_);
      return Copy(field.begin, field.end, out);
    });
  }

  template <typename Visit>
  bool EachField(int64_t begin, int64_t end, Visit visit) {
    Field field;
    for (int64_t at = begin; at < end; at = field.end) {
      if (!ReadField(at, end, &field) || !visit(field)) return false;
    }
    return true;
  }

  bool ReadField(int64_t at, int64_t end, Field* field) {
    field->begin = at;
    uint64_t tag;
    if (!Varint(&at, end, &tag)) return false;
    field->number = tag >> 3;
    field->wire_type = tag & 7;
    uint64_t bytes = 0;
    switch (field->wire_type) {
      case kVarint: {
        field->value_begin = at;
        uint64_t value;
        if (!Varint(&at, end, &value)) return false;
        field->end = at;
        return true;
      }
      case kFixed64:
        bytes = 8;
        break;
      case kFixed32:
        bytes = 4;
        break;
      case kLengthDelimited:
        if (!Varint(&at, end, &bytes)) return false;
        break;
      default:
        return false;
    }
    if (bytes > static_cast<uint64_t>(end - at)) return false;
    field->value_begin = at;
    field->end = at + static_cast<int64_t>(bytes);
    return true;
  }

  bool Varint(int64_t* at, int64_t end, uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (*at >= end || !InWindow(*at)) return false;
      const auto byte = static_cast<uint8_t>(window_[*at - window_begin_]);
      ++*at;
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool Copy(int64_t begin, int64_t end, std::string* out) {
    while (begin < end) {
      if (!InWindow(begin)) return false;
      const int64_t bytes = std::min(end, window_end_) - begin;
      out->append(&window_[begin - window_begin_], static_cast<size_t>(bytes));
      begin += bytes;
    }
    return true;
  }

  // Reads the part of the file that starts there, unless it is already in memory.
  bool InWindow(int64_t at) {
    if (at >= window_begin_ && at < window_end_) return true;
    const int64_t bytes = std::min(kWindow, file_bytes_ - at);
    status_ = weights_.read(at, bytes, window_.get());
    window_begin_ = at;
    window_end_ = status_.ok() ? at + bytes : at;
    return status_.ok();
  }

  static constexpr int64_t kWindow = 64 << 10;
  const int64_t file_bytes_;
  const int64_t min_bytes_;
  DetachedWeights& weights_;
  const std::unique_ptr<char[]> window_ = std::make_unique<char[]>(kWindow);
  int64_t window_begin_ = 0;
  int64_t window_end_ = 0;
  int initializers_ = 0;
  Status status_;
};

}  // namespace

StatusOr<std::optional<std::string>> DetachWeights(int64_t file_bytes, int64_t min_bytes,
                                                   ReadAt read, DetachedWeights* weights) {
  weights->read = std::move(read);
  weights->ranges.clear();
  Walk walk(file_bytes, min_bytes, weights);
  std::string rest;
  if (walk.Model(&rest)) return rest;
  weights->ranges.clear();
  CHAIRLIFT_RETURN_IF_ERROR(walk.status());
  return std::nullopt;
}

}  // namespace chairlift
