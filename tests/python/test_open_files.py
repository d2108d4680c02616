"""A server that may open few files: one client cannot take them all."""

import os
import re
import resource
import socket
import subprocess

from serving import PROGRAM, ending


def connect(port, address):
    connection = socket.socket()
    connection.settimeout(30)
    connection.bind((address, 0))
    connection.connect(("127.0.0.1", port))
    return connection


def ask(connection):
    connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    return connection.recv(4096)


def test_a_client_holds_its_share_of_the_files_that_may_be_open(doubling_file):
    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    server = ending.start(
        [PROGRAM, "serve", os.fspath(doubling_file), "--no-timing", "--http-port", "0", "--metrics-port", "-1",
         "--drain-seconds", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, before=few_files)
    connections = []
    try:
        log = ""
        while not (found := re.search(r"model on http://127.0.0.1:([0-9]+)|models on http://127.0.0.1:([0-9]+)", log)):
            line = server.stdout.readline()
            assert line, log
            log += line
        port = int(found[1] or found[2])
        said = re.search(r"may open 128 files: at most ([0-9]+) connections are accepted, ([0-9]+) of one client", log)
        assert said, log
        most, of_client = int(said[1]), int(said[2])
        assert 0 < of_client < most < 128
        for _ in range(of_client):
            connections.append(connect(port, "127.0.0.1"))
            assert b" 200 " in ask(connections[-1])
        connections.append(connect(port, "127.0.0.1"))
        assert b" 429 " in connections[-1].recv(4096)
        connections.append(connect(port, "127.0.0.2"))
        assert b" 200 " in ask(connections[-1])
    finally:
        for connection in connections:
            connection.close()
        server.terminate()
        server.wait(60)
