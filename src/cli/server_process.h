// The process of `chairlift serve`: its signals, its parent process, and memory that it returns.
//
// Signals: KeepRunning(), then SetWaitsForSignals(true) when the server is ready, WaitForEnd() on
// the thread that called KeepRunning(), and SetWaitsForSignals(false) when it drains.
#ifndef CHAIRLIFT_CLI_SERVER_PROCESS_H_
#define CHAIRLIFT_CLI_SERVER_PROCESS_H_

#include <signal.h>

#include <initializer_list>
#include <string>

#include "base/status.h"
#include "server/server.h"

namespace chairlift {

// Makes the C library return large buffers to the system when they are freed. By default it keeps
// up to 32 MiB of each such size: some hundreds of MiB after a burst.
void ReturnLargeBuffers();

// Checks --parent-fd: the socket to the parent process, with which this program must end. −1: none.
Status CheckParent(int descriptor);
// An address at which a server that listens on all addresses can be reached.
std::string Reachable(const std::string& address);
// Sends the parent, if there is one, the server's ports: "127.0.0.1:8000 127.0.0.1:8002".
void ReportTo(int parent, const std::string& address, const Server& server);

sigset_t SignalSet(std::initializer_list<int> signals);
// A closed connection or log pipe must not end the program. Nor must a closed terminal at once:
// SIGHUP waits for WaitForEnd().
void KeepRunning();
// Whether SIGTERM and SIGINT are for WaitForEnd(). If not, they end the program at once.
void SetWaitsForSignals(bool waits);
// Waits for SIGTERM or SIGINT, which are blocked, and returns the one received; 0 if the parent
// ended. Meanwhile returns free memory to the system: the C library returns only the end of each of
// its heaps.
int WaitForEnd(int parent);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_SERVER_PROCESS_H_
