"""The life of a job. Every stage is one module; read them in this order.

     client                                                                                  worker
       |  create                                                    claim / heartbeat / complete ^
       v                                                                                         |
    [admit] --- timer, job ---> ( store ) <--- QUEUED at version v --- [dispatch] --- push --> lines --> [claim]
       |                          |   ^                                    ^                             [heartbeat]
       | due within minutes       |   | new timer, version+1               | take                        [complete]
       +------ offer ------+      |   +--- [complete] [rescue] [change] [redrive]
                           v      |                                        |
                        ( near tier: due sets ) ---------------------------+
                           ^      |
                           +- [load] reads five minutes ahead, [recheck] looks again at what has passed

A schedule's occurrences are such jobs, with one more thing around them: whatever takes one out of SCHEDULED makes the next one in the
same write.

    [define] [direct] [intervene]          [dispatch] --- due ---> [recur] ---+
             |                                                                v
             +------ a step, decided by model.recurrence ------> [occurrences] one move: row, next job, fire, skips
             |                                                                ^
    [sweep] -+  [follow] <--- [ends] <--- who ends jobs                       |
                   +---- the next of a backlog, or one that was held ---------+

The record of truth is the store; the near tier can be lost at any time. Writes and what a crash just after leaves behind:

| stage | writes, in this order | if the process dies just after |
|---|---|---|
| admit | idempotency record, timer, job; offer or push; answer | loader or recheck finds the timer; a repeat by key gets the same job |
| load | offer to the near tier | offered again |
| dispatch | job -> QUEUED at that version; then its line; then out of the due set | fired again: "already QUEUED", pushed again |
| claim | from the line into the request's hand; RUNNING; out of the hand | back into the line after 10 s; or the lease ends: rescue |
| heartbeat | lease_until where the attempt matches | the worker asks again |
| complete | (retry: new timer) record, new state; finished row, out of `jobs` | the worker repeats and gets the same answer |
| change, redrive | new timer at version+1, then the job | the timer without its job's change is void |
| rescue | as complete, with the outcome `lost` or `timed_out` | seen again |
| recheck | watch timers, then exactly the timers that were read go | read again |
| park | park row; unpark: push, watch timer, then the row goes | pushed again; parked again |
| recur, follow | the schedule's row with all that the step brings; then the near tier | whole or not at all; its timers are found |
| define, direct, intervene | as recur | the client repeats: an upsert by name, a trigger by its key |
| sweep | as recur | the next sweep looks again |
| archive | rows of old jobs go, bounded | continued |
| carry | target marked; all records, a job's timer before it; source marked; target's mark goes | the same move again ends it |

The invariant: at every commit each unfinished job has a timer at its version in a bucket that has not been rechecked (park rows
count as such), or below the floor, where the recheck looks at every start and every hour.
"""
