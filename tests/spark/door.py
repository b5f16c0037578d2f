"""Requests as Spark sends them, without a Spark session."""

import json

from phalanx.spark import dispatch

CLUSTER = {"cores": 2, "task_bytes": 1 << 27}


def catalog(name="lake", **confs):
    """A catalog as requests name it."""
    return {"name": name, "confs": confs}


def call(op, zone="UTC", **arguments):
    """The reply to a request, which goes through JSON both ways. Raises what the operation does."""
    request = json.loads(json.dumps({"zone": zone, **arguments}))
    return json.loads(json.dumps(dispatch.call(op, request)))
