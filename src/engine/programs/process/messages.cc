#include "engine/programs/process/messages.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/excerpt.h"
#include "base/status.h"
#include "chairlift/text.h"

namespace chairlift {
namespace {

enum FromServer : uint32_t {
  kRun = 1,
  kRoom = 2,
  kStop = 3,
  kAnswer = 4,
  kCallFailed = 5,
  kCancel = 6
};
enum FromWorker : uint32_t {
  kReady = 1,
  kLoadFailed = 2,
  kResult = 3,
  kNeedsRoom = 4,
  kFailed = 5,
  kPart = 6,
  kCall = 7
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

enum Lengths : uint32_t { kEqual = 0, kShared = 1, kOwn = 2, kStreamed = 3 };

void PutSignature(std::string& to, const SymbolicSpec& tensor, Lengths lengths) {
  Put(to, static_cast<uint32_t>(tensor.dtype));
  Put(to, tensor.shape.has_rank() ? static_cast<int32_t>(tensor.shape.rank()) : int32_t{-1});
  Put(to, static_cast<uint32_t>(tensor.name.size()));
  Put(to, static_cast<uint32_t>(lengths));
  if (tensor.shape.has_rank()) {
    for (const Dim& dim : tensor.shape.dims()) {
      Put(to, dim.known() ? dim.value() : int64_t{-1});
    }
  }
  to += tensor.name;
}

// The unread part of a message. After the first error, all reads fail.
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
    if (!Take(code) || code < 1 || code > static_cast<uint32_t>(DType::kBytes)) return false;
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

bool TakeSignature(Reader& reader, SymbolicSpec& tensor, uint32_t& lengths) {
  int32_t rank = 0;
  uint32_t name_bytes = 0;
  if (!reader.TakeType(tensor.dtype) || !reader.Take(rank) || rank < -1 || rank > kMaxMessageRank ||
      !reader.Take(name_bytes) || !reader.Take(lengths) || lengths > kStreamed) {
    return false;
  }
  std::vector<Dim> dims;
  for (int32_t axis = 0; axis < rank; ++axis) {
    int64_t dim = 0;
    if (!reader.Take(dim) || dim < -1) return false;
    dims.push_back(dim < 0 ? Dim() : Dim(dim));
  }
  if (rank >= 0) tensor.shape = SymbolicShape(std::move(dims));
  return reader.TakeText(name_bytes, tensor.name);
}

void PutName(std::string& to, const std::string& name) {
  Put(to, static_cast<uint32_t>(name.size()));
  to += name;
}

bool TakeName(Reader& reader, std::string& name) {
  uint32_t bytes = 0;
  return reader.Take(bytes) && reader.TakeText(bytes, name);
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
    return InvalidArgument("the description of a batch of {} inputs has {} bytes; it may have {}",
                           message.inputs.size(), text.size(), kMaxMessageBytes);
  }
  return text;
}

std::string EncodeRoom(uint64_t room) {
  std::string message = Header(kRoom, 0, 0);
  Put(message, room);
  return message;
}

StatusOr<std::string> EncodeAnswer(uint64_t call, uint64_t bytes,
                                   const std::vector<NamedPlacedTensor>& outputs) {
  std::string message = Header(kAnswer, static_cast<uint32_t>(outputs.size()), call);
  Put(message, bytes);
  for (const NamedPlacedTensor& output : outputs) {
    PutName(message, output.name);
    PutTensor(message, output.tensor);
  }
  if (message.size() <= kMaxMessageBytes) return message;
  return InvalidArgument("the answer's {} outputs are described by more than {} bytes",
                         outputs.size(), kMaxMessageBytes);
}

std::string EncodeCallFailed(uint64_t call, const Status& why) {
  constexpr size_t kMostText = 16384;
  return Header(kCallFailed, static_cast<uint32_t>(why.code()), call) +
         std::string(CutText(Message(why), kMostText));
}

std::string EncodeStop() { return Header(kStop, 0, 0); }

std::string EncodeCancel(uint64_t sequence) { return Header(kCancel, 0, sequence); }

std::string EncodeCancel(uint64_t sequence, const CancelledRows& rows) {
  std::string message = Header(kCancel, rows.count, sequence);
  Put(message, rows.first);
  return message;
}

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
      uint32_t lengths = 0;
      for (SymbolicSpec& tensor : ready.inputs) {
        if (!TakeSignature(reader, tensor, lengths) || lengths > kShared) return Malformed("ready");
        ready.ragged_inputs.push_back(lengths == kShared);
      }
      for (SymbolicSpec& tensor : ready.outputs) {
        if (!TakeSignature(reader, tensor, lengths)) return Malformed("ready");
        ready.ragged_outputs.push_back(lengths == kShared);
        ready.own_offsets.push_back(lengths == kOwn);
        const bool first = ready.own_offsets.size() == 1;
        if (!first && ready.streams != (lengths == kStreamed)) return Malformed("ready");
        ready.streams = lengths == kStreamed;
      }
      if (!reader.AtEnd()) return Malformed("ready");
      return ready;
    }
    case kLoadFailed:
      return WorkerLoadFailed{reader.Rest()};
    case kResult:
    case kPart: {
      if (count > 2 * kMaxMessageTensors) return Malformed("result");
      std::vector<PlacedTensor> outputs(count);
      for (PlacedTensor& tensor : outputs) {
        if (!TakeTensor(reader, tensor)) return Malformed("result");
      }
      if (!reader.AtEnd()) return Malformed("result");
      if (kind == kPart) return WorkerPart{sequence, std::move(outputs)};
      return WorkerResult{sequence, std::move(outputs)};
    }
    case kCall: {
      WorkerCall asked{.call = sequence, .model = {}, .inputs = {}};
      if (count > kMaxMessageTensors || !reader.Take(asked.sequence) ||
          !reader.Take(asked.timeout_us) || !TakeName(reader, asked.model)) {
        return Malformed("call");
      }
      asked.inputs.resize(count);
      for (NamedPlacedTensor& input : asked.inputs) {
        if (!TakeName(reader, input.name) || !TakeTensor(reader, input.tensor)) {
          return Malformed("call");
        }
      }
      if (!reader.AtEnd()) return Malformed("call");
      return asked;
    }
    case kNeedsRoom: {
      WorkerNeedsRoom needs{.sequence = sequence};
      if (!reader.Take(needs.bytes) || !reader.AtEnd()) return Malformed("needs-room");
      return needs;
    }
    case kFailed:
      if (count > 1) return Malformed("failed");
      return WorkerFailed{sequence, reader.Rest(), count == 1};
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
        PutSignature(text, ready.inputs[i], ready.ragged_inputs[i] ? kShared : kEqual);
      }
      for (size_t i = 0; i < ready.outputs.size(); ++i) {
        PutSignature(text, ready.outputs[i],
                     ready.streams             ? kStreamed
                     : ready.own_offsets[i]    ? kOwn
                     : ready.ragged_outputs[i] ? kShared
                                               : kEqual);
      }
      return text;
    }
    std::string operator()(const WorkerLoadFailed& failed) const {
      return Header(kLoadFailed, 0, 0) + failed.why;
    }
    static std::string Outputs(uint32_t kind, uint64_t sequence,
                               const std::vector<PlacedTensor>& outputs) {
      std::string text = Header(kind, static_cast<uint32_t>(outputs.size()), sequence);
      for (const PlacedTensor& tensor : outputs) PutTensor(text, tensor);
      return text;
    }
    std::string operator()(const WorkerResult& result) const {
      return Outputs(kResult, result.sequence, result.outputs);
    }
    std::string operator()(const WorkerPart& part) const {
      return Outputs(kPart, part.sequence, part.outputs);
    }
    std::string operator()(const WorkerCall& asked) const {
      std::string text = Header(kCall, static_cast<uint32_t>(asked.inputs.size()), asked.call);
      Put(text, asked.sequence);
      Put(text, asked.timeout_us);
      PutName(text, asked.model);
      for (const NamedPlacedTensor& input : asked.inputs) {
        PutName(text, input.name);
        PutTensor(text, input.tensor);
      }
      return text;
    }
    std::string operator()(const WorkerNeedsRoom& needs) const {
      std::string text = Header(kNeedsRoom, 0, needs.sequence);
      Put(text, needs.bytes);
      return text;
    }
    std::string operator()(const WorkerFailed& failed) const {
      return Header(kFailed, failed.refused ? 1 : 0, failed.sequence) + failed.why;
    }
  };
  return std::visit(Encoder{}, message);
}

}  // namespace chairlift
