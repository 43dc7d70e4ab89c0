"""What the agent says about itself: its board's sensors, its queue, its errors, its model."""

import collections
import os
import socket

from npuforge import VERSION
from npuforge import npuforge_pb2 as pb
from npunode import sensors

# The error rate is of this many last inferences.
WINDOW = 100


class Health:
    """Counts inferences and reads the board's sensors."""

    def __init__(self, settings, backend, queue):
        self._settings, self._backend, self._queue = settings, backend, queue
        self._outcomes = collections.deque(maxlen=WINDOW)
        path = settings["telemetry"]["temperature_path"]
        root = settings["backend"]["virtual_root"]
        self._temperature = sensors.find_soc_zone(root) if path == "auto" else path
        # A board that is only files under a folder has its boots there too.
        self._boot_id = os.path.join(root, sensors.BOOT_ID.lstrip("/"))
        self._cpu = sensors.CpuPercent()
        self.inferences = self.errors = 0
        self.model_state = pb.MODEL_STATE_LOADING

    def ended(self, good):
        """An inference has ended."""
        self._outcomes.append(good)
        self.inferences += 1
        self.errors += not good

    def read(self):
        """`NodeHealth` now."""
        bad = self._outcomes.count(False)
        health = pb.NodeHealth(
            queue_depth=self._queue.depth,
            in_flight=self._queue.in_flight,
            error_rate=bad / len(self._outcomes) if self._outcomes else 0.0,
            boot_id=sensors.read_text(self._boot_id) or "",
        )
        known = self._backend.utilisation
        cpu, npu = known if known else (self._cpu.read(), sensors.npu_percent())
        celsius = sensors.read_number(self._temperature, 1000.0) if self._temperature else None
        for name, value in (
            ("temperature_c", celsius),
            ("cpu_percent", cpu),
            ("memory_percent", sensors.memory_percent()),
            ("npu_percent", npu),
            ("input_voltage_v", sensors.read_number(sensors.INPUT_VOLTS, 1e6)),
        ):
            if value is not None:
                setattr(health, "has_" + name, True)
                setattr(health, name, value)
        return health

    def models(self):
        """The one model that this agent serves."""
        models = self._settings["models"]
        return [
            pb.ModelDescriptor(
                id=models["model_id"],
                version=models["version"],
                state=self.model_state,
                sha256=self._backend.model_sha256,
            )
        ]

    def descriptor(self, address):
        """`NodeDescriptor` of a node that serves at this address."""
        node = self._settings["node"]
        return pb.NodeDescriptor(
            node_id=node["id"],
            hostname=socket.gethostname(),
            address=address,
            device_type=node["device_type"],
            npu_type=node["npu_type"],
            npu_core_count=node["npu_core_count"],
            memory_bytes=sensors.memory_total_bytes(),
            agent_version=VERSION,
            runtime_version=self._backend.runtime_version,
            models=self.models(),
            backend=self._backend.name,
            virtual=self._backend.virtual,
            accepts_client_requests=True,
        )
