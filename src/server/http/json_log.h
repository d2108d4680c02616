// Log lines as JSON objects, for collectors of logs.
#ifndef CHAIRLIFT_SERVER_HTTP_JSON_LOG_H_
#define CHAIRLIFT_SERVER_HTTP_JSON_LOG_H_

#include <string>

namespace chairlift::http {

// Makes every line of the log an object with "time" (UTC, RFC 3339), "level" and "message". Call it
// before other threads log.
void LogAsJson();
bool LogsAsJson();

// Logs `message` at level debug. `fields`, for a log of objects only, are more of the line's
// fields, each as `,"name":value`.
void DebugWithFields(const std::string& message, const std::string& fields);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_JSON_LOG_H_
