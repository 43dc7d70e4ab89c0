"""The verbs of `inv`: one module each, thin faces over the package."""

from __future__ import annotations

from invoke import Collection

from tasks import (
    advise,
    audit,
    bench,
    boards,
    certs,
    collect,
    compare,
    demo,
    doctor,
    import_,
    lease,
    ledger,
    plan,
    provision,
    report,
    status,
    teardown,
    test,
    validate,
    virtual,
)

namespace = Collection()
for _module in (
    demo,
    doctor,
    provision,
    plan,
    bench,
    collect,
    import_,
    validate,
    report,
    compare,
    ledger,
    teardown,
    status,
    lease,
    certs,
    audit,
    advise,
    test,
):
    for _task in _module.VERBS:
        namespace.add_task(_task)
namespace.add_collection(Collection.from_module(boards))
namespace.add_collection(Collection.from_module(virtual))
