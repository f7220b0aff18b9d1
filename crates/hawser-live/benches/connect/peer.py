"""os-brick in a warm process: one JSON command per line in, one JSON answer per line out.

With the argument "properties" it prints them and ends, as a command of its own would.
"""

import concurrent.futures
import json
import os
import sys
import time

import os_brick
from os_brick import privileged
from os_brick.initiator import connector
from oslo_concurrency import lockutils
from oslo_config import cfg

LOCKS = "/run/os-brick"
# As a compute node is set up; it runs as root, so nothing goes through sudo, which favours it.
CONF = cfg.CONF
CONF([], project="bench")
lockutils.set_defaults(LOCKS)
os.makedirs(LOCKS, exist_ok=True)
os_brick.setup(CONF)
for context in (privileged.default, privileged.brick_privsep_hide_output):
    context.set_client_mode(False)

# What each connected volume was told, by its id: its disconnect needs it.
DEVICES = {}


def properties():
    return connector.get_connector_properties("", "10.0.2.15", True, False)


def make(multipath):
    return connector.InitiatorConnector.factory("ISCSI", "", use_multipath=multipath)


def connect(brick, volume):
    device = brick.connect_volume(volume)
    DEVICES[volume["volume_id"]] = device
    return device["path"]


def disconnect(brick, volume):
    device = DEVICES.pop(volume["volume_id"])
    brick.disconnect_volume(volume, device)


def act(command):
    if command["op"] == "properties":
        begun = time.monotonic()
        properties()
        return {"seconds": time.monotonic() - begun}
    work = {"connect": connect, "disconnect": disconnect}[command["op"]]
    volumes = command["volumes"]
    bricks = [make(command["multipath"]) for _ in volumes]
    if len(volumes) == 1:
        begun = time.monotonic()
        paths = [work(bricks[0], volumes[0])]
        return {"seconds": time.monotonic() - begun, "paths": paths}
    with concurrent.futures.ThreadPoolExecutor(len(volumes)) as pool:
        begun = time.monotonic()
        paths = list(pool.map(work, bricks, volumes))
        return {"seconds": time.monotonic() - begun, "paths": paths}


if sys.argv[1:] == ["properties"]:
    print(json.dumps(properties()))
    sys.exit(0)

print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    try:
        answer = act(json.loads(line))
    except Exception as error:
        answer = {"error": repr(error)}
    print(json.dumps(answer), flush=True)
