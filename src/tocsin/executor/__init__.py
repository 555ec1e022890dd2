"""The executor: a worker that makes HTTP callbacks for all tenants.

    claim (sdk.engine) ──> caps ──> http ──> guard ──> the target
                            │         └── classified answer ──> complete
                            └── no place: released

It reaches the server only through the API, with a token of scope `executor`; it holds neither database credentials nor
signing keys. In the embedded shape the same class calls the API without a socket.
"""
