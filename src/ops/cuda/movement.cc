// Operators that move elements. Most of them always move the same elements to the same places. For
// these, the CPU's kernel runs once, at compile time, on tensors whose elements are their own
// indices. Its output is the table of moves for a kernel here.
#include "ops/cuda/movement.cuh"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ops/axes.h"
#include "ops/cuda/kernels.h"

namespace chairlift::cuda {
namespace {

// `moved`: how many of the first inputs are moved; −1: all. The others are constants. `fill_input`
// (0 if absent) holds the value for places that receive no element.
StatusOr<std::unique_ptr<Kernel>> CompileMove(const CompileContext& context, const char* name,
                                              int moved, int fill_input = -1) {
  const OperatorDef* const def = OperatorRegistry::Builtin().Find("", name);
  const int num_inputs = static_cast<int>(context.inputs.size());
  if (moved < 0) moved = num_inputs;
  if (moved > kMostMoved) return Unimplemented("more than {} inputs", kMostMoved);
  std::vector<TensorDesc> inputs(context.inputs.begin(), context.inputs.end());
  std::vector<TensorDesc> outputs(context.outputs.begin(), context.outputs.end());
  std::vector<const Tensor*> constants(context.constants.begin(), context.constants.end());
  constants.resize(inputs.size(), nullptr);
  std::vector<Tensor> places(inputs.size());
  std::vector<const void*> data(inputs.size(), nullptr);
  for (int i = 0; i < num_inputs; ++i) {
    if (!inputs[i].present()) continue;
    if (i == fill_input) continue;
    if (i >= moved) {
      if (constants[i] == nullptr) return Unimplemented("operand {} is not a constant", i);
      data[i] = constants[i]->raw();
      continue;
    }
    inputs[i].dtype = DType::kInt64;
    places[i] = Tensor::Allocate(DType::kInt64, inputs[i].shape);
    std::iota(places[i].data<int64_t>(), places[i].data<int64_t>() + places[i].size(),
              int64_t{i} << kInputShift);
    constants[i] = nullptr;
    data[i] = places[i].raw();
  }
  uint64_t fill = 0;
  if (fill_input >= 0) {
    const auto at = static_cast<size_t>(fill_input);
    if (context.has_input(fill_input)) {
      const Tensor* const value = context.constant(fill_input);
      if (value == nullptr) return Unimplemented("what is filled in is not a constant");
      std::memcpy(&fill, value->raw(), value->byte_size());
    }
    inputs.resize(std::max(inputs.size(), at + 1));
    constants.resize(inputs.size(), nullptr);
    data.resize(inputs.size(), nullptr);
    places.push_back(Tensor::Scalar<int64_t>(-1));
    inputs[at].dtype = DType::kInt64;
    inputs[at].shape = places.back().shape();
    constants[at] = &places.back();
    data[at] = places.back().raw();
  }
  std::vector<Tensor> tables;
  std::vector<void*> written;
  for (TensorDesc& output : outputs) {
    output.dtype = DType::kInt64;
    tables.push_back(Tensor::Allocate(DType::kInt64, output.shape));
    written.push_back(tables.back().raw());
  }
  WeightCache none;
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                             def->compile({context.attributes, inputs, outputs, constants, none}));
  SoloTeam team;
  const Tensor scratch =
      Tensor::Allocate(DType::kUInt8, Shape{static_cast<int64_t>(kernel->scratch_bytes())});
  CHAIRLIFT_RETURN_IF_ERROR(
      kernel->Run({data, written, const_cast<void*>(scratch.raw()), team, /*worker=*/0}));
  for (Tensor& table : tables) {
    CHAIRLIFT_ASSIGN_OR_RETURN(table, UploadNow(context, table));
  }
  const size_t bytes = DTypeSize(context.inputs[0].dtype);
  return MakeKernel([tables = std::move(tables), moved, bytes, fill](const KernelArgs& args) {
    MovedInputs from = {};
    for (int i = 0; i < moved; ++i) from.data[i] = args.inputs[i];
    const cudaStream_t stream = StreamOf(args).handle();
    for (size_t o = 0; o < tables.size(); ++o) {
      if (args.outputs[o] == nullptr) continue;
      LaunchMove(from, static_cast<const int64_t*>(tables[o].raw()), tables[o].size(), bytes, fill,
                 args.outputs[o], stream);
    }
    return Launched("moves of elements");
  });
}

template <const char* const& kName, int kMoved>
StatusOr<std::unique_ptr<Kernel>> CompileMoveOf(const CompileContext& context) {
  return CompileMove(context, kName, kMoved);
}

StatusOr<std::unique_ptr<Kernel>> CompilePad(const CompileContext& context) {
  const bool constant = context.attributes.String("mode", "constant") == "constant";
  return CompileMove(context, "Pad", 1, constant ? 2 : -1);
}

// All bytes in order: for reshapes that are not views, because they are graph outputs.
StatusOr<std::unique_ptr<Kernel>> CompileCopy(const CompileContext& context) {
  const size_t bytes = context.outputs[0].byte_size();
  return MakeKernel([bytes](const KernelArgs& args) {
    return Checked(cudaMemcpyAsync(args.outputs[0], args.inputs[0], bytes, cudaMemcpyDeviceToDevice,
                                   StreamOf(args).handle()),
                   "a copy on the GPU");
  });
}

// At inference, with one output.
StatusOr<std::unique_ptr<Kernel>> CompileDropout(const CompileContext& context) {
  if (context.outputs.size() > 1 && context.outputs[1].present()) {
    return Unimplemented("a mask as output");
  }
  return CompileCopy(context);
}

// If two adjacent groups of axes are swapped, after axes that stay.
StatusOr<std::unique_ptr<Kernel>> CompileTranspose(const CompileContext& context) {
  const Shape& in = context.inputs[0].shape;
  std::vector<int64_t> perm = context.attributes.Ints("perm");
  if (perm.empty()) {
    for (int d = in.rank() - 1; d >= 0; --d) perm.push_back(d);
  }
  int first = 0;
  while (first < in.rank() && perm[first] == first) ++first;
  if (first == in.rank()) return CompileCopy(context);
  const int second = static_cast<int>(perm[first]);  // where the second group begins
  bool swaps = true;
  for (int d = first; d < in.rank(); ++d) {
    const int moved = second + d - first;
    swaps = swaps && perm[d] == (moved < in.rank() ? moved : first + moved - in.rank());
  }
  if (!swaps) return CompileMove(context, "Transpose", 1);
  const int64_t batch = in.NumElements(0, first), columns = in.NumElements(first, second),
                rows = in.NumElements(second, in.rank());
  const size_t bytes = DTypeSize(context.inputs[0].dtype);
  return MakeKernel([=](const KernelArgs& args) {
    LaunchTranspose(args.inputs[0], batch, rows, columns, bytes, args.outputs[0],
                    StreamOf(args).handle());
    return Launched("Transpose");
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileGather(const CompileContext& context) {
  const Shape& in = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", 0), in.rank()));
  const int64_t outer = in.NumElements(0, axis), size = in[axis];
  const int64_t inner = in.NumElements(axis + 1, in.rank()) *
                        static_cast<int64_t>(DTypeSize(context.inputs[0].dtype));
  const int64_t count = context.inputs[1].size();
  const bool wide = context.inputs[1].dtype == DType::kInt64;
  if (size == 0 && outer * count * inner > 0) {
    return InvalidArgument("an index into axis {} of size 0 is out of range", axis);
  }
  return MakeKernel([=](const KernelArgs& args) {
    CudaStream& stream = StreamOf(args);
    LaunchGather(args.inputs[0], args.inputs[1], wide, outer, size, count, inner, args.outputs[0],
                 stream.fault(), stream.handle());
    return Launched("Gather");
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileGatherElements(const CompileContext& context) {
  const Shape &in = context.inputs[0].shape, &out = context.outputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", 0), in.rank()));
  if (in.rank() > kMaxGatherDims) return Unimplemented("more than {} dimensions", kMaxGatherDims);
  GatherElementsCall call = {};
  call.num_dims = in.rank();
  call.axis = axis;
  call.count = context.outputs[0].size();
  call.size = in[axis];
  for (int d = 0; d < in.rank(); ++d) {
    call.dims[d] = out[d];
    call.strides[d] = in.NumElements(d + 1, in.rank());
  }
  if (call.size == 0 && call.count > 0) {
    return InvalidArgument("an index into axis {} of size 0 is out of range", axis);
  }
  const bool wide = context.inputs[1].dtype == DType::kInt64;
  return MakeKernel(
      [call, wide, bytes = DTypeSize(context.inputs[0].dtype)](const KernelArgs& args) {
        CudaStream& stream = StreamOf(args);
        LaunchGatherElements(call, args.inputs[0], args.inputs[1], wide, bytes, args.outputs[0],
                             stream.fault(), stream.handle());
        return Launched("GatherElements");
      });
}

constexpr const char* kSlice = "Slice";
constexpr const char* kConcat = "Concat";
constexpr const char* kSplit = "Split";
constexpr const char* kExpand = "Expand";
constexpr const char* kTile = "Tile";
constexpr const char* kDepthToSpace = "DepthToSpace";
constexpr const char* kSpaceToDepth = "SpaceToDepth";
constexpr const char* kGatherNd = "GatherND";
constexpr const char* kChannelShuffle = "ChannelShuffle";
constexpr const char* kReverseSequence = "ReverseSequence";

}  // namespace

std::span<const KernelEntry> MovementKernels() {
  static const KernelEntry kKernels[] = {
      {"", "Transpose", CompileTranspose},
      {"", "Gather", CompileGather},
      {"", "Slice", CompileMoveOf<kSlice, 1>},
      {"", "Concat", CompileMoveOf<kConcat, -1>},
      {"", "Split", CompileMoveOf<kSplit, 1>},
      {"", "Expand", CompileMoveOf<kExpand, 1>},
      {"", "Tile", CompileMoveOf<kTile, 1>},
      {"", "DepthToSpace", CompileMoveOf<kDepthToSpace, 1>},
      {"", "SpaceToDepth", CompileMoveOf<kSpaceToDepth, 1>},
      {"", "GatherElements", CompileGatherElements},
      {"", "GatherND", CompileMoveOf<kGatherNd, 1>},
      {"", "ReverseSequence", CompileMoveOf<kReverseSequence, 1>},
      {"", "Pad", CompilePad},
      {"", "ChannelShuffle", CompileMoveOf<kChannelShuffle, 1>},
      {"", "Identity", CompileCopy},
      {"", "Dropout", CompileDropout},
      {"", "Reshape", CompileCopy},
      {"", "Flatten", CompileCopy},
      {"", "Squeeze", CompileCopy},
      {"", "Unsqueeze", CompileCopy},
  };
  return kKernels;
}

}  // namespace chairlift::cuda
