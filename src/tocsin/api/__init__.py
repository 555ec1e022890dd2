"""The HTTP API: what API.md promises, in front of the flow.

    request --> [app]   who is it (auth), which operation (routing), is the body JSON of that form (reading, query)
                  |
                  v
                one handler of [jobs attempts queues tenants probes]: what the request alone can be refused for (checks),
                  |                                                   then the flow, then the answer (views)
                  v
                answer or problem (problems)

`operations.OPERATIONS` is the whole surface as one table; routing, validation and the OpenAPI document come from it.
Nothing here is stored and nothing decides about a job: a crash in this package loses an answer, never a job.
"""

from tocsin.api.app import create_app
from tocsin.api.desk import Desk

__all__ = ["Desk", "create_app"]
