// Writes response heads.
#include "server/http/response_head.h"

#include "server/http/json_writer.h"

namespace chairlift::http {

std::string_view Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

void AppendResponseHead(const ResponseHead& head, std::string* out) {
  out->append("HTTP/1.1 ");
  AppendJsonNumber(head.status, out);
  out->push_back(' ');
  out->append(Reason(head.status));
  if (!head.unbounded) {
    out->append("\r\nContent-Length: ");
    AppendJsonNumber(head.content_length, out);
  } else if (!head.http_1_0) {
    out->append("\r\nTransfer-Encoding: chunked");
  }
  if (head.content_length > 0 || head.unbounded) {
    out->append("\r\nContent-Type: ");
    out->append(head.content_type);
  }
  if (head.json_length.has_value()) {
    out->append("\r\nInference-Header-Content-Length: ");
    AppendJsonNumber(*head.json_length, out);
  }
  if (!head.allow.empty()) {
    out->append("\r\nAllow: ");
    out->append(head.allow);
  }
  if (!head.keep_alive) {
    out->append("\r\nConnection: close");
  } else if (head.http_1_0) {
    out->append("\r\nConnection: keep-alive");
  }
  out->append("\r\n\r\n");
}

}  // namespace chairlift::http
