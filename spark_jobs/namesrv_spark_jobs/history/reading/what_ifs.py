"""What-ifs: removals and staleness as logged, and as replayed under other settings."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from namesrv_spark_jobs.frames import DataFrame, F
from namesrv_spark_jobs.history.model import Outcome, WhatIfRequest, WhatIfs
from namesrv_spark_jobs.history.reading.read_span import ReadSpan, Row, is_longer
from namesrv_spark_jobs.options import WhatIf
from namesrv_spark_jobs.report.charts import Setting, lettered, what_if
from namesrv_spark_jobs.report.drawing import drawn
from namesrv_spark_jobs.transforms import output_rows, replay

# expiries that a what-if shows beside the requested one
OTHER_EXPIRIES_MS: Final = (10_000, 20_000, 30_000, 45_000, 60_000, 90_000, 120_000, 180_000, 240_000, 300_000)


def what_ifs(read: ReadSpan, request: WhatIfRequest) -> WhatIfs:
    """The report's replay of the silences in which any setting might evict a broker."""
    # under an expiry shorter than the heartbeat interval every broker is evicted all the time: slow and useless
    others_ms = (it for it in OTHER_EXPIRIES_MS if it * 1000 >= read.usual)
    expiries = sorted({request.expiry_ms, *others_ms})
    evictions = read.as_logged.select(F.lit(replay.LOGGED).alias("policy"), "staleness", "is_false")
    for expiry_ms in expiries:
        evictions = evictions.unionByName(_evictions(read, expiry_ms, request.scan_ms))
    closed = read.tables.intervals.filter(F.col("is_unannounced") & (F.col("reason") != "silent"))
    removals = closed.agg(F.count("key").alias("others"), F.count(F.when(F.col("is_false"), 1)).alias("false_others"))
    rows = read.engine.collected(
        {
            "judged": replay.judged(evictions),
            "polled": replay.with_polls(evictions, (request.poll_ms,)),
            "removals": removals,
        }
    )
    judged, polled = ({row["policy"]: row for row in rows[name]} for name in ("judged", "polled"))
    outcomes = [
        _outcome(judged.get(expiry_ms), polled.get(expiry_ms), expiry_ms, request.scan_ms) for expiry_ms in expiries
    ]
    if all(row["broker_expiry"] is None for row in read.tables.boot_rows):
        outcomes = [replace(outcome, evictions=None, false=None) for outcome in outcomes]
    chart, (logged, *outcomes) = _with_chart(
        [_outcome(judged.get(replay.LOGGED), polled.get(replay.LOGGED), None, None), *outcomes]
    )
    return WhatIfs(
        reading=read.about,
        poll_ms=request.poll_ms,
        others=rows["removals"][0]["others"],
        false_others=rows["removals"][0]["false_others"],
        logged=logged,
        requested=outcomes[expiries.index(request.expiry_ms)],
        expiries=outcomes,
        chart=chart,
    )


def _with_chart(outcomes: Sequence[Outcome]) -> tuple[str, list[Outcome]]:
    """The report's chart, and the outcomes with their letters in it; the logged settings come first."""
    settings = [
        Setting(str(number), "fixed" if number else "logged", one.false, one.client_p99_ms)
        for number, one in enumerate(outcomes)
        if one.client_p99_ms is not None and one.false is not None
    ]
    if not settings:
        return "", [*outcomes]
    spec = what_if(settings).spec
    # The page has the title of the axis in its reader's language.
    spec["encoding"]["x"]["title"] = None
    letters = {setting.label: letter for letter, setting in lettered(settings).items()}
    named = [replace(one, letter=letters.get(str(number), "")) for number, one in enumerate(outcomes)]
    return drawn(spec, "what-if"), named


def _evictions(read: ReadSpan, expiry_ms: int, scan_ms: int) -> DataFrame:
    """The evictions under one setting; only the few silences that outlast its expiry are replayed."""
    silences = read.long_silences if expiry_ms * 1000 >= read.usual else read.tables.silences
    grid = WhatIf(expiry_ms=(expiry_ms,), scan_ms=(scan_ms,), poll_ms=(1,))
    evicted = replay.replayed(silences.filter(is_longer(expiry_ms * 1000)), grid)
    return evicted.withColumn("policy", F.lit(expiry_ms))


def _outcome(judged: Row | None, polled: Row | None, expiry_ms: int | None, scan_ms: int | None) -> Outcome:
    registry, client = output_rows.stats(judged), output_rows.stats(polled)
    return Outcome(
        expiry_ms=expiry_ms,
        scan_ms=scan_ms,
        evictions=0 if judged is None else judged["evictions"],
        false=0 if judged is None else judged["false"],
        registry_p99_ms=registry["p99"],
        client_p50_ms=client["p50"],
        client_p99_ms=client["p99"],
    )
