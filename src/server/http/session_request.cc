// The state machine of a connection: complete requests, and their way to the engine or a handler.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "server/http/named_model.h"
#include "server/http/session.h"
#include "server/http/session_call.h"

namespace chairlift::http {
namespace {

// Bodies up to this size are read on the io thread: a fraction of a millisecond. Most binary
// tensors are not copied.
constexpr size_t kInlineJsonBytes = 32 << 10;
constexpr size_t kInlineBodyBytes = 1 << 20;

}  // namespace

// `body` is in `owner` or, if that is null, at the front of the input buffer.
void Session::Dispatch(Lock* lock, std::string_view body,
                       const std::shared_ptr<BodyBuffer>& owner) {
  state_ = State::kBusy;
  deadline_ = TimePoint::max();
  const auto consume = [&] {
    if (owner == nullptr) input_.Consume(body.size());
  };
  if (!CountRequest()) {
    consume();
    return Respond(
        ErrorReply(protocol::TooManyRequests(*client_, context_->limits.max_client_requests)));
  }
  switch (route_.endpoint) {
    case Endpoint::kInfer:
    case Endpoint::kGenerate:
    case Endpoint::kGenerateStream:
    case Endpoint::kCompletions:
    case Endpoint::kChatCompletions:
      return Infer(lock, body, owner);
    case Endpoint::kLoad:
    case Endpoint::kUnload:
      LoadInBackground(body);
      return consume();
    case Endpoint::kServerMetadata:
    case Endpoint::kLive:
    case Endpoint::kReady:
    case Endpoint::kModelReady:
      Respond(Handle(context_->service, route_, body));
      return consume();
    default:
      if (InfersTexts(route_.endpoint)) return Infer(lock, body, owner);
      HandleOnPool(body);
      return consume();
  }
}

bool Session::CountRequest() {
  if (port_ != Port::kInference) return true;
  if (!client_->BeginRequest(context_->limits.max_client_requests)) return false;
  in_flight_ = true;
  ++context_->metrics.requests_in_flight;
  return true;
}

void Session::UncountRequest() {
  place_.reset();
  if (!std::exchange(in_flight_, false)) return;
  client_->EndRequest();
  --context_->metrics.requests_in_flight;
}

void Session::Infer(Lock* lock, std::string_view body, const std::shared_ptr<BodyBuffer>& owner) {
  const size_t json_bytes = parser_.head().json_length.value_or(body.size());
  if (owner != nullptr && (json_bytes > kInlineJsonBytes || body.size() > kInlineBodyBytes)) {
    const bool binary = body.size() - json_bytes > json_bytes;
    const UnreadBody unread = {
        .bytes = static_cast<int64_t>(binary ? body.size() - json_bytes : body.size()),
        .binary = binary};
    if (place_ == nullptr && !Reserve(body, unread)) return;
    return InferOnPool(owner);
  }
  StatusOr<InferRequest> request = Decode(loop_->decoders(), body, owner);
  if (owner == nullptr) input_.Consume(body.size());
  Submit(lock, std::move(request));
}

// Connections with a single request count as one member together, so opening many gains nothing.
InferRequest::Caller Session::Caller() const {
  return {.group = client_->number, .member = submitted_ > 0 ? static_cast<uint64_t>(fd_) + 1 : 0};
}

// Takes a place for a request whose body takes long to read. False: it was refused. If the body is
// compressed, or has the model's name between long values, the request is admitted after it is
// read.
bool Session::Reserve(std::string_view body, const UnreadBody& unread) {
  std::string model = route_.model, version = route_.version;
  if (InfersTexts(route_.endpoint) || Completes(route_.endpoint)) {
    model = ServedTextModel(route_.endpoint, NamedModelAtEnds(body), context_->service);
    version.clear();
  } else if (route_.endpoint == Endpoint::kGenerate ||
             route_.endpoint == Endpoint::kGenerateStream) {  // of texts or of tokens
    const std::string of_texts = model + std::string(kComplete);
    if (context_->service.engine().ModelReady(of_texts, "")) model = of_texts;
  } else if (route_.endpoint != Endpoint::kInfer) {
    return true;
  }
  if (model.empty()) return true;
  StatusOr<std::shared_ptr<Admission>> place =
      context_->service.engine().Reserve(model, version, Caller(), unread);
  if (!place.ok()) {
    Respond(ErrorReply(place.status()));
    return false;
  }
  place_ = *std::move(place);
  return true;
}

void Session::InferOnPool(const std::shared_ptr<BodyBuffer>& body) {
  const size_t bytes = body->size();
  RunOnPool(bytes, [this, body = std::shared_ptr<BodyBuffer>(body)](Decoders& decoders) mutable {
    StatusOr<InferRequest> request = Decode(decoders, body->view(), body);
    body.reset();
    Lock lock(mutex_);
    with_thread_ = false;
    if (state_ != State::kBusy) return;  // the client is gone
    Submit(&lock, std::move(request));
    if (state_ != State::kBusy) ResumeOnLoop();
  });
}

// For the current request, which no other thread accesses.
StatusOr<InferRequest> Session::Decode(Decoders& decoders, std::string_view body,
                                       const std::shared_ptr<const void>& owner) {
  if (Completes(route_.endpoint)) {
    return DecodeCompletion(decoders.completions, body);
  }
  if (IsOfTexts(route_.endpoint)) return DecodeTexts(decoders.texts, body);
  if (route_.endpoint != Endpoint::kInfer) return DecodeGenerate(decoders.generate, body);
  const size_t json_bytes = parser_.head().json_length.value_or(body.size());
  const bool raw = parser_.head().json_length == uint64_t{0};
  StatusOr<DecodedInfer> decoded =
      raw ? DecodeRawInfer(body, owner) : decoders.infer.Decode(body, json_bytes, owner);
  if (!decoded.ok()) return std::move(decoded).status();
  format_ = std::move(decoded->format);
  return std::move(decoded->request);
}

StatusOr<DecodedInfer> Session::DecodeRawInfer(std::string_view body,
                                               const std::shared_ptr<const void>& owner) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata model,
                             context_->service.Find(route_.model, route_.version));
  return DecodeRaw(body, model, context_->limits, owner);
}

// A missing model is reported before errors in the body.
Reply Session::RefusalOf(const Status& body) const {
  const Status model = context_->service.Find(route_.model, route_.version).status();
  return ErrorReply(route_.model.empty() || model.ok() ? body : model);
}

StatusOr<InferRequest> Session::DecodeTexts(TextDecoder& decoder, std::string_view body) {
  CHAIRLIFT_ASSIGN_OR_RETURN(chairlift::http::DecodedTexts decoded,
                             decoder.Decode(route_.endpoint, body, context_->service));
  text_format_ = std::move(decoded.format);
  route_.endpoint = decoded.endpoint;
  route_.model = decoded.request.model;
  return std::move(decoded.request);
}

StatusOr<InferRequest> Session::DecodeCompletion(CompletionDecoder& decoder,
                                                 std::string_view body) {
  CHAIRLIFT_ASSIGN_OR_RETURN(
      chairlift::http::DecodedCompletion decoded,
      decoder.Decode(body, route_.endpoint == Endpoint::kChatCompletions, context_->service));
  completion_ = std::move(decoded.format);
  route_.model = decoded.request.model;
  route_.version.clear();
  BeginParts(&decoded.request);
  return std::move(decoded.request);
}

// For a request whose answer may be sent in parts.
void Session::BeginParts(InferRequest* request) {
  streamed_.clear();
  events_.clear();
  events_sent_ = 0;
  stream_failed_ = false;
  unsent_ = 0;
  if (!Streams()) return;
  // Not an owner of the session: the engine may keep this longer than the callback.
  request->on_parts = [session = weak_from_this()](std::span<const InferPart> parts) {
    if (const auto self = session.lock()) self->OnParts(parts);
  };
  request->parts_once = true;
  request->unread = [session = weak_from_this()]() -> int64_t {
    const auto self = session.lock();
    return self == nullptr ? 0 : self->unsent_.load();
  };
}

bool Session::Streams() const {
  return route_.endpoint == Endpoint::kGenerateStream ||
         (Completes(route_.endpoint) && completion_.stream);
}

// The model of the route. If that takes tokens and the body has text, the text model for it.
StatusOr<ModelMetadata> Session::GeneratingModel(std::string_view body) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ModelMetadata model,
                             context_->service.Find(route_.model, route_.version));
  const auto takes = [&](std::string_view name) {
    return std::any_of(model.inputs.begin(), model.inputs.end(),
                       [&](const TensorSpec& input) { return input.name == name; });
  };
  if (body.find("\"text_input\"") == std::string_view::npos || takes("text_input")) return model;
  CHAIRLIFT_ASSIGN_OR_RETURN(route_.model,
                             FindTextModel(kComplete, "tokens (docs/guides/language-models.md)",
                                           context_->service, &model.name));
  route_.version.clear();
  CHAIRLIFT_ASSIGN_OR_RETURN(ModelMetadata texts, context_->service.Find(route_.model, ""));
  texts.name = model.name;  // its name for clients
  return texts;
}

StatusOr<InferRequest> Session::DecodeGenerate(GenerateDecoder& decoder, std::string_view body) {
  if (parser_.head().json_length.value_or(body.size()) != body.size()) {
    return InvalidArgument("binary tensors are not part of the generate extension; use …/infer");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata model, GeneratingModel(body));
  CHAIRLIFT_ASSIGN_OR_RETURN(DecodedGenerate decoded, decoder.Decode(body, model));
  format_ = OutputFormat();
  generated_ = {model.name, model.version, decoded.request.id};
  omitted_ = OmittedIn(model.outputs, decoded.omitted);
  BeginParts(&decoded.request);
  return std::move(decoded.request);
}

void Session::Submit(Lock* lock, StatusOr<InferRequest>&& request) {
  if (!request.ok()) return Respond(RefusalOf(request.status()));
  if (access_ != nullptr) {
    access_->model = route_.model;
    access_->id = request->id;
  }
  request->model = std::move(route_.model);
  request->version = std::move(route_.version);
  request->caller = Caller();
  request->place = std::move(place_);
  InferCallback callback = [self = shared_from_this()](StatusOr<InferResponse> response) mutable {
    const Call call(std::move(self), Call::kCounted);
    call->OnInferred(std::move(response));
  };
  request_id_ = 0;
  with_engine_ = true;
  const uint64_t number = ++submitted_;
  context_->calls.Add();

  lock->unlock();  // the callback may run before InferAsync returns
  RequestId id;
  try {
    id = context_->service.engine().InferAsync(*std::move(request), std::move(callback));
  } catch (const std::exception&) {
    lock->lock();
    if (submitted_ == number && std::exchange(with_engine_, false)) context_->calls.Remove();
    throw;
  }
  lock->lock();
  if (submitted_ != number) return;  // it was answered, and the next request has started
  request_id_ = id;
  if (state_ != State::kClosed || !with_engine_) return;
  lock->unlock();
  context_->service.engine().Cancel(id);
  lock->lock();
}

void Session::BeginAccess() {
  if (!Access::Wanted()) return;
  access_ = std::make_unique<Access>();
  access_->begin = Clock::Steady().Now();
}

void Session::EndAccess(const char* end) noexcept {
  if (access_ == nullptr) return;
  try {
    if (access_->model.empty() && !with_thread_) access_->model = route_.model;
    LogAccess(parser_.head(), *access_, client_->name, end);
  } catch (const std::exception&) {
    // No memory for a log line.
  }
  access_.reset();
}

void Session::HandleOnPool(std::string_view body) {
  RunOnPool(body.size(), [this, text = std::string(body)](Decoders&) {
    if (route_.endpoint == Endpoint::kMetrics) {
      return AnswerFromPool(
          {200, context_->service.metrics().Render(), "text/plain; version=0.0.4; charset=utf-8"});
    }
    AnswerFromPool(Handle(context_->service, route_, text));
  });
}

void Session::LoadInBackground(std::string_view body) {
  const Status allowed = context_->service.MayLoad();
  if (!allowed.ok()) return Respond(ErrorReply(allowed));
  std::function<void()> task = [call = std::make_shared<Call>(shared_from_this()), route = route_,
                                text = std::string(body)] {
    Session* const self = call->get();
    Reply reply;
    try {
      reply = Handle(self->context_->service, route, text);
    } catch (const std::exception&) {
      return self->ThreadFailed();
    }
    self->OnHandled(std::move(reply));
  };
  const Status waits = context_->service.RunInBackground(std::move(task));
  with_thread_ = waits.ok();
  if (!with_thread_) Respond(ErrorReply(waits));
}

}  // namespace chairlift::http
