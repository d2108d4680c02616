#include "engine/programs/process/messages.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace chairlift {
namespace {

enum FromServer : uint32_t { kRun = 1, kRoom = 2, kStop = 3 };
enum FromWorker : uint32_t {
  kReady = 1,
  kLoadFailed = 2,
  kResult = 3,
  kNeedsRoom = 4,
  kFailed = 5
};

template <typename T>
void Put(std::string& to, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Header(uint32_t kind, uint32_t count, uint64_t sequence) {
  std::string message;
  Put(message, kind);
  Put(message, count);
  Put(message, sequence);
  return message;
}

void PutTensor(std::string& to, const PlacedTensor& tensor) {
  Put(to, static_cast<uint32_t>(tensor.dtype));
  Put(to, static_cast<uint32_t>(tensor.shape.rank()));
  Put(to, tensor.offset);
  for (const int64_t dim : tensor.shape) Put(to, dim);
}

void PutSignature(std::string& to, const SymbolicSpec& tensor, bool ragged) {
  Put(to, static_cast<uint32_t>(tensor.dtype));
  Put(to, tensor.shape.has_rank() ? static_cast<int32_t>(tensor.shape.rank()) : int32_t{-1});
  Put(to, static_cast<uint32_t>(tensor.name.size()));
  Put(to, uint32_t{ragged});
  if (tensor.shape.has_rank()) {
    for (const Dim& dim : tensor.shape.dims()) {
      Put(to, dim.known() ? dim.value() : int64_t{-1});
    }
  }
  to += tensor.name;
}

// What has not been read of a message. Once something was wrong, all reads fail.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> rest) : rest_(rest) {}

  template <typename T>
  bool Take(T& value) {
    if (rest_.size() < sizeof(value)) return false;
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_ = rest_.subspan(sizeof(value));
    return true;
  }
  bool TakeText(size_t bytes, std::string& text) {
    if (rest_.size() < bytes) return false;
    text.assign(reinterpret_cast<const char*>(rest_.data()), bytes);
    rest_ = rest_.subspan(bytes);
    return true;
  }
  bool TakeType(DType& dtype) {
    uint32_t code = 0;
    if (!Take(code) || code < 1 || code > static_cast<uint32_t>(DType::kBool)) return false;
    dtype = static_cast<DType>(code);
    return true;
  }
  std::string Rest() {
    std::string text;
    (void)TakeText(rest_.size(), text);
    return text;
  }
  bool AtEnd() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

bool TakeTensor(Reader& reader, PlacedTensor& tensor) {
  uint32_t rank = 0;
  if (!reader.TakeType(tensor.dtype) || !reader.Take(rank) || rank > kMaxMessageRank ||
      !reader.Take(tensor.offset)) {
    return false;
  }
  for (uint32_t axis = 0; axis < rank; ++axis) {
    int64_t dim = 0;
    if (!reader.Take(dim)) return false;
    tensor.shape.Append(dim);
  }
  return true;
}

bool TakeSignature(Reader& reader, SymbolicSpec& tensor, std::vector<bool>& all_ragged) {
  int32_t rank = 0;
  uint32_t name_bytes = 0, ragged = 0;
  if (!reader.TakeType(tensor.dtype) || !reader.Take(rank) || rank < -1 || rank > kMaxMessageRank ||
      !reader.Take(name_bytes) || !reader.Take(ragged) || ragged > 1) {
    return false;
  }
  all_ragged.push_back(ragged == 1);
  std::vector<Dim> dims;
  for (int32_t axis = 0; axis < rank; ++axis) {
    int64_t dim = 0;
    if (!reader.Take(dim) || dim < -1) return false;
    dims.push_back(dim < 0 ? Dim() : Dim(dim));
  }
  if (rank >= 0) tensor.shape = SymbolicShape(std::move(dims));
  return reader.TakeText(name_bytes, tensor.name);
}

Status Malformed(const char* what) { return InvalidArgument("a malformed {} message", what); }

}  // namespace

StatusOr<std::string> Encode(const RunMessage& message) {
  std::string text = Header(kRun, static_cast<uint32_t>(message.inputs.size()), message.sequence);
  Put(text, message.slot);
  Put(text, message.rows);
  Put(text, message.input_room);
  Put(text, message.output_room);
  for (const PlacedTensor& tensor : message.inputs) PutTensor(text, tensor);
  if (text.size() > kMaxMessageBytes) {
    return InvalidArgument("a batch of {} inputs is described by {} bytes; at most {} are possible",
                           message.inputs.size(), text.size(), kMaxMessageBytes);
  }
  return text;
}

std::string EncodeRoom(uint64_t room) {
  std::string message = Header(kRoom, 0, 0);
  Put(message, room);
  return message;
}

std::string EncodeStop() { return Header(kStop, 0, 0); }

StatusOr<WorkerMessage> ParseWorkerMessage(std::span<const std::byte> message) {
  if (message.size() > kMaxMessageBytes) {
    return InvalidArgument("a message of more than {} bytes", kMaxMessageBytes);
  }
  Reader reader(message);
  uint32_t kind = 0, count = 0;
  uint64_t sequence = 0;
  if (!reader.Take(kind) || !reader.Take(count) || !reader.Take(sequence)) {
    return InvalidArgument("a message of {} bytes, fewer than a header", message.size());
  }
  switch (kind) {
    case kReady: {
      WorkerReady ready;
      if (count > kMaxMessageTensors || sequence > kMaxMessageTensors) return Malformed("ready");
      ready.inputs.resize(count);
      ready.outputs.resize(sequence);
      for (SymbolicSpec& tensor : ready.inputs) {
        if (!TakeSignature(reader, tensor, ready.ragged_inputs)) return Malformed("ready");
      }
      for (SymbolicSpec& tensor : ready.outputs) {
        if (!TakeSignature(reader, tensor, ready.ragged_outputs)) return Malformed("ready");
      }
      if (!reader.AtEnd()) return Malformed("ready");
      return ready;
    }
    case kLoadFailed:
      return WorkerLoadFailed{reader.Rest()};
    case kResult: {
      WorkerResult result{.sequence = sequence, .outputs = {}};
      if (count > kMaxMessageTensors) return Malformed("result");
      result.outputs.resize(count);
      for (PlacedTensor& tensor : result.outputs) {
        if (!TakeTensor(reader, tensor)) return Malformed("result");
      }
      if (!reader.AtEnd()) return Malformed("result");
      return result;
    }
    case kNeedsRoom: {
      WorkerNeedsRoom needs{.sequence = sequence};
      if (!reader.Take(needs.bytes) || !reader.AtEnd()) return Malformed("needs-room");
      return needs;
    }
    case kFailed:
      return WorkerFailed{sequence, reader.Rest()};
    default:
      return InvalidArgument("a message of kind {}, which there is not", kind);
  }
}

std::string Encode(const WorkerMessage& message) {
  struct Encoder {
    std::string operator()(const WorkerReady& ready) const {
      std::string text =
          Header(kReady, static_cast<uint32_t>(ready.inputs.size()), ready.outputs.size());
      for (size_t i = 0; i < ready.inputs.size(); ++i) {
        PutSignature(text, ready.inputs[i], ready.ragged_inputs[i]);
      }
      for (size_t i = 0; i < ready.outputs.size(); ++i) {
        PutSignature(text, ready.outputs[i], ready.ragged_outputs[i]);
      }
      return text;
    }
    std::string operator()(const WorkerLoadFailed& failed) const {
      return Header(kLoadFailed, 0, 0) + failed.why;
    }
    std::string operator()(const WorkerResult& result) const {
      std::string text =
          Header(kResult, static_cast<uint32_t>(result.outputs.size()), result.sequence);
      for (const PlacedTensor& tensor : result.outputs) PutTensor(text, tensor);
      return text;
    }
    std::string operator()(const WorkerNeedsRoom& needs) const {
      std::string text = Header(kNeedsRoom, 0, needs.sequence);
      Put(text, needs.bytes);
      return text;
    }
    std::string operator()(const WorkerFailed& failed) const {
      return Header(kFailed, 0, failed.sequence) + failed.why;
    }
  };
  return std::visit(Encoder{}, message);
}

}  // namespace chairlift
