#include "kernels/gpu/matmul.h"

#ifdef LAPIDARY_GPU_EMULATION
#include "kernels/gpu/device/bf16.h"
#include "kernels/gpu/device/warp.h"
#else
#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#endif

namespace lapidary::gpu {

#ifdef LAPIDARY_GPU_EMULATION

double ColdMilliseconds(gpuStream, const MatmulWorkspace&, const std::function<void()>& work) {
  work();
  return 0;
}

double MeasureProductRate() { return 0; }

namespace {

// A row a CTA of one thread.
__global__ void MatmulKernel(MatmulShape shape, const uint16_t* x, const uint16_t* w, float* y) {
  const int64_t row = blockIdx.x;
  const uint16_t* mine = x + row * shape.cols;
  for (int64_t n = 0; n < shape.outputs; ++n) {
    float sum = 0;
    for (int64_t c = 0; c < shape.cols; ++c) sum += Bf16ToFloat(mine[c]) * Bf16ToFloat(w[n * shape.cols + c]);
    y[row * shape.y_stride + n] = sum;
  }
}

}  // namespace

struct ManyRowsMatmul::State {};

ManyRowsMatmul::ManyRowsMatmul() = default;

void ManyRowsMatmul::Run(gpuStream stream, const MatmulShape& shape, const uint16_t* x, const uint16_t* w, float* y,
                         const MatmulWorkspace&) {
  if (shape.rows == 0) return;
  MatmulShape dense = shape;
  if (dense.y_stride == 0) dense.y_stride = shape.outputs;
  LaunchShape launch;
  launch.grid_x = static_cast<unsigned>(shape.rows);
  launch.block = 1;
  Launch("Matmul", MatmulKernel, launch, stream, dense, x, w, y);
}

#else

namespace {

constexpr int kProposals = 16;  // algorithms tried for a size
constexpr int kTimedRuns = 3;   // of each, after one that is not timed

std::string Describe(const MatmulShape& s) {
  return "product [" + std::to_string(s.rows) + ", " + std::to_string(s.cols) + "] x [" + std::to_string(s.outputs) +
         ", " + std::to_string(s.cols) + "]^T";
}

// The functions of libcublasLt that are used here.
struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
};

constexpr const char* kLibrary = "libcublasLt.so.13";

CublasLt LoadCublasLt() {
  // Never closed: its code stays in use until the process ends.
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    Throw(ErrorKind::kDevice, std::string("cannot load ") + kLibrary + " (CUDA 13 cuBLASLt): " + ::dlerror());
  }
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)> >(::dlsym(library, name));
    if (function == nullptr) Throw(ErrorKind::kDevice, std::string(kLibrary) + " has no function " + name);
  };
  CublasLt lt;
  bind(lt.create, "cublasLtCreate");
  bind(lt.destroy, "cublasLtDestroy");
  bind(lt.status_string, "cublasLtGetStatusString");
  bind(lt.matmul, "cublasLtMatmul");
  bind(lt.algo_check, "cublasLtMatmulAlgoCheck");
  bind(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  bind(lt.desc_create, "cublasLtMatmulDescCreate");
  bind(lt.desc_destroy, "cublasLtMatmulDescDestroy");
  bind(lt.desc_set, "cublasLtMatmulDescSetAttribute");
  bind(lt.preference_create, "cublasLtMatmulPreferenceCreate");
  bind(lt.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  bind(lt.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  bind(lt.layout_create, "cublasLtMatrixLayoutCreate");
  bind(lt.layout_destroy, "cublasLtMatrixLayoutDestroy");
  return lt;
}

struct Choice {
  cublasLtMatmulAlgo_t algorithm;
};

// The next 2^i or 3 * 2^i: row counts that share an algorithm.
int64_t RowsLike(int64_t rows) {
  int64_t size = 16;
  while (size < rows) size *= 2;
  return size > 16 && size / 4 * 3 >= rows ? size / 4 * 3 : size;
}

bool IsCapturing(gpuStream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

}  // namespace

double ColdMilliseconds(gpuStream stream, const MatmulWorkspace& scratch, const std::function<void()>& work) {
  work();
  double best = 0;
  for (int i = 0; i < kTimedRuns; ++i) {
    Event begin, end;
    // Larger than the second-level cache, and long enough for the host to give the rest meanwhile.
    Fill(scratch.data, 0, scratch.size_bytes, stream);
    begin.Record(stream);
    work();
    end.Record(stream);
    end.Synchronize();
    const double ms = end.ElapsedMs(begin);
    best = i == 0 ? ms : std::min(best, ms);
  }
  return best;
}

struct ManyRowsMatmul::State {
  // The operands of one call as the library sees them: column-major, so y^T = W x^T.
  struct Call {
    const State* state;
    const MatmulShape* shape;
    gpuStream stream;
    const uint16_t* x;
    const uint16_t* w;
    float* y;
    MatmulWorkspace workspace;
    cublasLtMatrixLayout_t w_layout = nullptr, x_layout = nullptr, y_layout = nullptr;
  };

  State();
  ~State();
  void Check(cublasStatus_t status, const std::string& what) const;
  void MakeLayouts(Call& call) const;
  void Free(const Call& call) const;
  std::vector<Choice> Proposals(const Call& call) const;
  cublasStatus_t Start(const Call& call, const Choice& choice) const;
  bool Suits(const Call& call, const Choice& choice) const;
  std::optional<double> Milliseconds(const Call& call, const Choice& choice) const;
  Choice Fastest(const Call& call, std::span<const Choice> proposals) const;
  Choice Choose(const Call& call);

  CublasLt lt = LoadCublasLt();
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  std::map<std::array<int64_t, 4>, Choice> fastest;  // by RowsLike, outputs, cols, y_stride
};

ManyRowsMatmul::State::State() {
  Check(lt.create(&handle), "start of cuBLASLt");
  Check(lt.desc_create(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cuBLASLt operation");
  const cublasOperation_t transpose = CUBLAS_OP_T;
  Check(lt.desc_set(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)), "cuBLASLt operation");
}

ManyRowsMatmul::State::~State() {
  if (operation != nullptr) lt.desc_destroy(operation);
  if (handle != nullptr) lt.destroy(handle);
}

void ManyRowsMatmul::State::Check(cublasStatus_t status, const std::string& what) const {
  if (status != CUBLAS_STATUS_SUCCESS) Throw(ErrorKind::kDevice, what + " failed: " + lt.status_string(status));
}

void ManyRowsMatmul::State::MakeLayouts(Call& call) const {
  const MatmulShape& s = *call.shape;
  const auto make = [&](cublasLtMatrixLayout_t& layout, cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld) {
    Check(lt.layout_create(&layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld), Describe(s));
  };
  make(call.w_layout, CUDA_R_16BF, s.cols, s.outputs, s.cols);
  make(call.x_layout, CUDA_R_16BF, s.cols, s.rows, s.cols);
  make(call.y_layout, CUDA_R_32F, s.outputs, s.rows, s.y_stride);
}

void ManyRowsMatmul::State::Free(const Call& call) const {
  for (cublasLtMatrixLayout_t layout : {call.w_layout, call.x_layout, call.y_layout}) {
    if (layout != nullptr) lt.layout_destroy(layout);
  }
}

std::vector<Choice> ManyRowsMatmul::State::Proposals(const Call& call) const {
  cublasLtMatmulPreference_t preference = nullptr;
  Check(lt.preference_create(&preference), "cuBLASLt preference");
  // Sums split over k are added in a second pass, in a fixed order.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  lt.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions));
  lt.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &call.workspace.size_bytes,
                    sizeof(call.workspace.size_bytes));
  const uint32_t alignment = 16;
  for (cublasLtMatmulPreferenceAttributes_t which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    lt.preference_set(preference, which, &alignment, sizeof(alignment));
  }
  std::array<cublasLtMatmulHeuristicResult_t, kProposals> results{};
  int found = 0;
  const cublasStatus_t status = lt.heuristic(handle, operation, call.w_layout, call.x_layout, call.y_layout,
                                             call.y_layout, preference, kProposals, results.data(), &found);
  lt.preference_destroy(preference);
  Check(status, Describe(*call.shape));
  std::vector<Choice> proposals;
  for (int i = 0; i < found; ++i) {
    if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS) {
      proposals.push_back({results[static_cast<size_t>(i)].algo});
    }
  }
  if (proposals.empty()) Throw(ErrorKind::kDevice, Describe(*call.shape) + ": cuBLASLt proposes no algorithm");
  return proposals;
}

cublasStatus_t ManyRowsMatmul::State::Start(const Call& call, const Choice& choice) const {
  const float one = 1, zero = 0;
  return lt.matmul(handle, operation, &one, call.w, call.w_layout, call.x, call.x_layout, &zero, call.y, call.y_layout,
                   call.y, call.y_layout, &choice.algorithm, call.workspace.data, call.workspace.size_bytes,
                   call.stream);
}

// Whether an algorithm chosen for about as many rows takes this many.
bool ManyRowsMatmul::State::Suits(const Call& call, const Choice& choice) const {
  cublasLtMatmulHeuristicResult_t result{};
  return lt.algo_check(handle, operation, call.w_layout, call.x_layout, call.y_layout, call.y_layout, &choice.algorithm,
                       &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= call.workspace.size_bytes;
}

std::optional<double> ManyRowsMatmul::State::Milliseconds(const Call& call, const Choice& choice) const {
  if (Start(call, choice) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  return ColdMilliseconds(call.stream, call.workspace, [&] { Check(Start(call, choice), Describe(*call.shape)); });
}

Choice ManyRowsMatmul::State::Fastest(const Call& call, std::span<const Choice> proposals) const {
  const Choice* best = nullptr;
  double best_ms = 0;
  for (const Choice& proposal : proposals) {
    const std::optional<double> ms = Milliseconds(call, proposal);
    if (!ms || (best != nullptr && *ms >= best_ms)) continue;
    best = &proposal;
    best_ms = *ms;
  }
  if (best == nullptr) Throw(ErrorKind::kDevice, Describe(*call.shape) + ": no algorithm of cuBLASLt runs");
  return *best;
}

Choice ManyRowsMatmul::State::Choose(const Call& call) {
  const MatmulShape& s = *call.shape;
  const std::array<int64_t, 4> size = {RowsLike(s.rows), s.outputs, s.cols, s.y_stride};
  const auto known = fastest.find(size);
  if (known != fastest.end() && Suits(call, known->second)) return known->second;
  const std::vector<Choice> proposals = Proposals(call);
  if (known != fastest.end() || IsCapturing(call.stream)) return proposals.front();
  return fastest[size] = Fastest(call, proposals);
}

ManyRowsMatmul::ManyRowsMatmul() : state_(std::make_unique<State>()) {}

void ManyRowsMatmul::Run(gpuStream stream, const MatmulShape& shape, const uint16_t* x, const uint16_t* w, float* y,
                         const MatmulWorkspace& workspace) {
  if (shape.rows == 0) return;
  MatmulShape dense = shape;
  if (dense.y_stride == 0) dense.y_stride = shape.outputs;
  State::Call call{state_.get(), &dense, stream, x, w, y, workspace};
  // Frees the layouts on every way out.
  const struct Cleanup {
    const State::Call& made;
    ~Cleanup() { made.state->Free(made); }
  } cleanup{call};
  state_->MakeLayouts(call);
  state_->Check(state_->Start(call, state_->Choose(call)), Describe(dense));
}

double MeasureProductRate() {
  constexpr int64_t kSize = 4096;
  const DeviceMemory x(2 * kSize * kSize), w(2 * kSize * kSize), y(4 * kSize * kSize), scratch(kMatmulWorkspaceBytes);
  const MatmulWorkspace workspace{scratch.data(), scratch.size_bytes()};
  // Varied bits: constant ones draw less power and let the clock rise.
  std::vector<uint16_t> values(kSize * kSize);
  uint32_t state = 1;
  for (uint16_t& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<uint16_t>(0x3c00u | (state >> 16 & 0x83ffu));  // of a size from 2^-7 to 2^1
  }
  const Stream stream;
  for (const DeviceMemory* to : {&x, &w}) CopyToDevice(to->data(), values.data(), to->size_bytes(), stream.get());
  ManyRowsMatmul matmul;
  const auto run = [&] {
    matmul.Run(stream.get(), {kSize, kSize, kSize}, static_cast<const uint16_t*>(x.data()),
               static_cast<const uint16_t*>(w.data()), static_cast<float*>(y.data()), workspace);
  };
  run();
  const double ms = ColdMilliseconds(stream.get(), workspace, run);
  Synchronize(stream.get());
  return 2.0 * kSize * kSize * kSize / (ms * 1e-3);
}

#endif

ManyRowsMatmul::~ManyRowsMatmul() = default;
ManyRowsMatmul::ManyRowsMatmul(ManyRowsMatmul&&) noexcept = default;
ManyRowsMatmul& ManyRowsMatmul::operator=(ManyRowsMatmul&&) noexcept = default;

}  // namespace lapidary::gpu
