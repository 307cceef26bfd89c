"""Jobs: what a child does when it is asked.

Each module serves the request whose tag is its name, with one function
`run(request, context)` that returns evidence: `probe` what a CPU shows of a
task (`looking` at its twin), `measure` what a device shows of it at full size
(`certifying` its criteria, `baselines` its times; they share `measuring`),
`calibrate` its eager time alone, `environment` what the child runs on, `canary`
whether the device is fit, `noop` nothing, in all the ways in which a job can go
wrong (`meddling` and `escaping` with its process). `state` is what of torch one
job must hand on to the next.
An exception that escapes `run` is the task's fault, unless it is a
`MeasureError`. Supervisors know jobs by name only: this module imports none,
and nothing outside a child imports one.
"""
