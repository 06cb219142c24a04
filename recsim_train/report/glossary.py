"""The words that a report uses, for its own last section."""

from __future__ import annotations

from collections.abc import Collection

from recsim_train.report import text
from recsim_train.results.summary import OTHER

TERMS = {
    "examples/s": "Throughput: training examples finished per second by all training loops "
    "together, from the first counted start to the last counted end.",
    "counted step": "One iteration of every training loop after the warm-up. Rates, times and "
    "bytes are of counted steps only.",
    "signed error": "Predicted / measured − 1. Positive: the prediction is too fast.",
    "reference work": "Four fifths of a second of fixed work on all cores (matrix products, rows "
    "read at random, plain Python, bytes over loopback) on idle cores before and after every "
    "calibration and every real run. Its speed, by CPU seconds, says how fast the machine is at "
    "the moment; what other programs take of the cores is not in it. It corrects no error.",
    "from calibration": "What the calibration's own errors make of the predicted throughput: half "
    "of the 95 % interval that follows from them, what predictions of its own runs miss included.",
    "spread": "The measurement's own uncertainty. Of several repeats: half of (largest − smallest) "
    "over the median. Of a single run: half of its 95 % interval (batch means over up to 20 "
    "windows of the run).",
    "CPU time per example": "Seconds of processors' time that all processes of a run spend on one "
    "example, by what they do. Throughput = cores busy / CPU time per example. A ratio below 1: "
    "predicted too small.",
    "cores busy": "How many cores work for the run in the mean of the counted window.",
    "runtime": "CPU time of a training loop between its operations: from effect to effect.",
    "asking": "CPU time of a loop at its end of requests, without their operations and messages.",
    "requests": "CPU time of servers between operations: what is asked, and recording it.",
    "transport": "CPU time of sending, receiving and waiting for requests and batches, in a loop's "
    "or server's thread and in those of gloo.",
    "not booked": "CPU time of the processes that no line of the ledger has.",
    "within the noise": "The error is no larger than the measurement's spread, so this measurement "
    "cannot tell the prediction from the truth. Of one run: no larger than the spread of its "
    "windows; how whole runs differ is not known then.",
    "within the intervals": "The measurement with its spread reaches into the prediction's 90 % "
    "interval: that of the simulation and that of its calibration, in quadrature.",
    "beyond the intervals": "The measurement with its spread lies outside the prediction's 90 % "
    "interval: noise and prices do not explain the error.",
    "rank agreement": "Kendall's tau between the predicted and the measured order of the "
    "comparisons: 1 is the same order, −1 the opposite one.",
    "payload bytes": "Bytes of the tensors that all roles hand to the transport; no headers, no "
    "protocol overhead, nothing for a shard in the same process.",
    "sync gap": "Iterations between two synchronisations of a trainer's dense parameters that "
    "follow one another: of all its threads together, or divided by their number.",
    "staleness": "Of one iteration: how many iterations of other training loops ended while it "
    "ran; their updates are what its gradient did not see.",
    "example-level parallelism": "ELP: examples under way at once, batch size × threads per "
    "trainer × trainers.",
    "what binds": "What the predicted throughput comes from: a saturated resource or, where "
    "none is, the time of a training loop's own iteration. The bound is what no run on the profile "
    "can exceed.",
    "AUC": "Area under the ROC curve on held-out rows: 0.5 is guessing, 1 is perfect order.",
    "diverged": "A training loss or a held-out score is infinite or no number: the run has no "
    "held-out figures, and its error counts in no figure over several comparisons. Iterations "
    "count from 0, warm-up included.",
    "normalised entropy": "Held-out log loss over that of always predicting the mean click rate; "
    "below 1 is better than the constant.",
}
EFFECTS = {
    "next_batch": "Waiting for the next mini-batch from the reader's bounded queue.",
    "compute": "Local work of the training loop, such as forward and backward pass.",
    "lookup": "Reading embeddings from every shard of the embedding service.",
    "update": "Sending embedding gradients back to the shards.",
    "fetch": "Reading embedding rows with their optimizer's state into a trainer's cache.",
    "store": "Writing cached embedding rows back to the shards; acknowledged.",
    "start": "Preparing and sending a request that goes on while the loop does other things.",
    "wait": "Waiting for the answer of a started request; it is recorded from its start to its "
    "answer beside the loop, under its own name.",
    "take": "Waiting for an item of another loop of the same trainer.",
    "next_item": "Waiting for an item that paces the loop, from another one of the same trainer.",
    "put": "Waiting for room in a queue to another loop of the same trainer.",
    "close": "Telling another loop of the same trainer that nothing more comes.",
    "barrier": "Waiting for other loops of the same trainer.",
    "progress": "Waiting until the trainer's workers have ended so many more iterations.",
    "next_round": "Beginning a round of a loop in the background: whether it is the last one.",
    "all_gather": "Handing a value to all trainers of a group, such as a batch's ids.",
    "all_to_all": "Sending each trainer of a group its own part of a value, such as embeddings.",
    "now": "Asking for the time.",
    "synced": "Noting that replicas of the dense parameters have just met; takes no time.",
    "pull": "Fetching the central dense parameters from the dense servers.",
    "push": "Sending a dense gradient to the dense servers.",
    "exchange": "Elastic averaging of dense parameters with the central copy.",
    "all_reduce": "Averaging dense values over all trainers, each receiving the mean.",
    OTHER: "Between effects: what is left of an iteration after all its effects.",
}


def glossary(effects: Collection[str]) -> dict[str, str]:
    """All general terms, and the effects that the report shows."""
    return TERMS | {
        "between effects" if name == OTHER else text.effect(name): meaning
        for name, meaning in EFFECTS.items()
        if name in effects
    }
