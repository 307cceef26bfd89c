"""Fleets: jobs by the thousand, on one machine or many.

`engine` is the fleet, `cluster` its Dask workers, `hosting` a host that joins,
`window` what keeps just enough orders in flight (`roster`: to whom), `worker`
what a Dask worker runs: threads that each supervise one child (`turns`: beside
whom, `breaker`: whether at all). `journal` is the lasting record of a run and
`starts` of what did not end, `settling` what follows, `progress` what a person
sees. Dask schedules and nothing more: it retries nothing and remembers nothing,
and its payloads are bytes. Imports no torch, here or on workers.
"""

from opsgen.fleet.engine import Fleet
from opsgen.fleet.journal import Journal
from opsgen.fleet.progress import Progress
from opsgen.fleet.settling import Ledger, Settled, settle

__all__ = ["Fleet", "Journal", "Ledger", "Progress", "Settled", "settle"]
