"""Fleets: jobs by the thousand, on one machine or many.

`engine` is the fleet, `cluster` its Dask workers, `window` what keeps just
enough orders in flight, `worker` what a Dask worker runs: threads that each
supervise one child. `journal` is the one lasting record of a run, `settling`
what follows from it, `progress` what a person sees. Dask schedules and nothing
more: it retries nothing and remembers nothing, and its payloads are bytes.
Imports no torch, here or on workers.
"""

from opsgen.fleet.engine import Fleet
from opsgen.fleet.journal import Journal
from opsgen.fleet.progress import Progress
from opsgen.fleet.settling import Ledger, Settled, settle

__all__ = ["Fleet", "Journal", "Ledger", "Progress", "Settled", "settle"]
