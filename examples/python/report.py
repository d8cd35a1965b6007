"""Two workers write the same report. The one that was paused is refused."""

import os

import leased
from leased import filegate

FOLDER = os.environ.get("FOLDER", "reports")

with leased.Client("http://127.0.0.1:7420") as client:
    gate = filegate.Gate(FOLDER)
    slow = client.lock("report/python").acquire()
    slow.release()  # stands for a lease that ended while its holder was paused

    with client.lock("report/python") as lease:
        gate.write(lease, b"the new report")

    try:
        gate.write(slow, b"an old report")
    except leased.StaleToken as error:
        print("refused:", error)
    assert gate.path("report/python").read_bytes() == b"the new report"
