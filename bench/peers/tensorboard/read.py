# Reads the events of a run with TensorBoard itself: python read.py runs/debug-1/tensorboard
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0})
events.Reload()
tags = events.Tags()
for tag in tags["scalars"]:
    scalars = events.Scalars(tag)
    assert [e.step for e in scalars] == sorted({e.step for e in scalars}), f"{tag}: steps are not in order, or twice"
    print(f"{tag}: {len(scalars)} scalars, step {scalars[0].step} {scalars[0].value:.6g} to step {scalars[-1].step} {scalars[-1].value:.6g}")
for tag in tags["histograms"]:
    last = events.Histograms(tag)[-1]
    print(f"{tag}: {len(events.Histograms(tag))} histograms, step {last.step}: {last.histogram_value.num:.0f} choices of {len(last.histogram_value.bucket)} experts")
