#!/usr/bin/env python3
"""Attaches a volume through the library socket of `hawser node`; Enter takes it away again.

    hawser node --alone --library /run/hawser/library.sock &
    python3 attach.py /run/hawser/library.sock info.json
"""
import json
import socket
import sys


class Library:
    """Calls over one connection, one after another."""

    def __init__(self, path):
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(path)
        self.file = stream.makefile("rw", encoding="utf-8", newline="\n")
        self.send({"hello": {"version": 1, "role": "caller"}})
        self.number = 0

    def send(self, frame):
        self.file.write(json.dumps(frame) + "\n")
        self.file.flush()

    def call(self, method, **params):
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        for line in self.file:
            frame = json.loads(line)
            if frame.get("id") == self.number:
                if "error" in frame:
                    raise RuntimeError(": ".join(frame["error"]["messages"]))
                return frame["ok"]
            if "bye" in frame:
                raise ConnectionError(frame["bye"]["reason"])
        raise ConnectionError("the node went away")


library = Library(sys.argv[1])
with open(sys.argv[2], encoding="utf-8") as file:
    info = json.load(file)
device = library.call("library.connect", info=info)["value"]
print(device["volume_id"], "is", device["path"], flush=True)
sys.stdin.readline()
library.call("library.disconnect", info=info)
print(device["volume_id"], "is gone")
