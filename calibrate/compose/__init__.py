"""Composed profiles: the cost of a serving step, added up from public kernel measurements.

    python -m calibrate.compose --tables ../shared/data/aiconfigurator_perf
        --groundtruth ../shared/groundtruth --configs ../shared/data --out scenarios/profiles [NAME...]

One module per kind of work: ``gemm`` and ``linear`` (matrix products), ``attention`` and ``latent``,
``gdn``, ``moe`` and ``routing``, ``elementwise``, ``collectives`` (what devices send each other);
``passes`` adds them up for a target or a drafter, or ``bundles`` from another tool's layers;
``catalogue`` and ``bundled`` say which model on which devices from which table, and ``overheads`` what
no kernel table holds (host, draft launches, sampler); ``checks`` compares the result with published
step times. The same tables give the same bytes.
"""
