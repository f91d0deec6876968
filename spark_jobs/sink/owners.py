"""The query and the run whose batch is being written.

In the driver, the thread of a batch has both as local properties, and so have its tasks. A function of Spark Connect
runs in a process of the server, and its jobs are those of the session, without these properties. There the id of the
query is that of its checkpoint, and the run is the one that is active in the session with this id.

A process of the server runs one function for one run, so that the owner which its first batch finds is that of all.
A run that has been stopped meanwhile may find the run that replaced it: two processes with one owner then fence each
other by their epochs, and each reads the state after it has fenced the other.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.state import Owner
from gregor.spark_jobs.sink.tasks import QUERY_ID, RUN_ID

if TYPE_CHECKING:
    from gregor.spark_jobs.folders.folder import Folder


def owner_in_driver(session: Any) -> Owner:
    """Return the owner by the local properties of this thread; raise JobError outside of a query."""
    context = session.sparkContext
    found = Owner(context.getLocalProperty(QUERY_ID) or "", context.getLocalProperty(RUN_ID) or "")
    if not found.query_id or not found.run_id:
        raise JobError("exactly_once is a function for writeStream.foreachBatch; this DataFrame is no batch of a query")
    return found


def owner_by_checkpoint(streams: Any, folder: Folder, batch_id: int) -> Owner:
    """Return the owner by the folder of a checkpoint and the queries of a session of Spark Connect.

    Raise JobError if the batch is not the one that the query of the checkpoint is writing.
    """
    text = folder.read("metadata")
    if text is None:
        raise JobError(
            f"{folder.path} has no file `metadata`: it is not the checkpoint of this query; give exactly_once the same "
            "`checkpoint` as the option checkpointLocation"
        )
    query_id = _query_id(folder.path, text)
    query = streams.get(query_id)
    if query is None:
        raise JobError(
            f"no query of this session has the checkpoint {folder.path} (id {query_id}); give exactly_once the same "
            "`checkpoint` as the option checkpointLocation"
        )
    if not folder.names(f"offsets/{batch_id}") or folder.names(f"commits/{batch_id}"):
        raise JobError(
            f"batch {batch_id} is not the present one of the checkpoint {folder.path}: the checkpoint belongs to "
            "another query; give exactly_once the same `checkpoint` as the option checkpointLocation"
        )
    return Owner(query_id, str(query.runId))


def _query_id(path: str, text: str) -> str:
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(f"{path}/metadata is damaged ({error}): start with a new checkpoint") from error
