package estimate

// The space that checkpoints need on the disk.

import (
	"fmt"
	"math"

	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
)

// CheckpointBytes returns the approximate size of a checkpoint of the ranks.
func CheckpointBytes(c config.Config, ranks int) int64 {
	return AllMemory(c, ranks).Optimizer
}

// CheckSpace is CheckDisk for a run that continues after a step, with a number of checkpoints that
// exist and of free bytes.
func CheckSpace(c config.Config, ranks, step, existing int, free int64) error {
	kept := c.Kept()
	most := kept + 1
	if c.Keep == 0 {
		most = 1
	}
	more := max(0, min(most-existing, savesAfter(c, step))) // a save deletes older ones first
	size := CheckpointBytes(c, ranks)
	need := events.Product(size, int64(more))
	if need <= free {
		return nil
	}
	if c.Keep == 0 {
		return fmt.Errorf("%s has %s of free space, but a checkpoint needs %s: free space there, or give --out on another disk",
			c.Out, system.Bytes(free), system.Bytes(size))
	}
	shrink := ""
	if c.SaveEvery != 0 {
		shrink += ", --save-every 0 (one checkpoint, at the end)"
	}
	if c.Keep > config.FewestKept {
		shrink += fmt.Sprintf(", --set keep=%d", config.FewestKept)
	}
	if existing > 0 {
		shrink += ", --set keep=0 (the old checkpoint is removed before the next is complete, and a crash in between loses both)"
	}
	return fmt.Errorf("%s has %s of free space, but the checkpoints need about %s more: each takes %s, %d are kept (keep) and one is being written: "+
		"free space there, or give --out on another disk%s", c.Out, system.Bytes(free), system.Bytes(need), system.Bytes(size), kept, shrink)
}

// savesAfter returns how many checkpoints a run writes after a step, at most.
func savesAfter(c config.Config, step int) int {
	switch left := c.Steps - step; {
	case left <= 0:
		return 0
	case c.SaveEvery == 0:
		return 1
	case c.SaveEvery.Steps() > 0:
		return left/c.SaveEvery.Steps() + 1
	}
	return math.MaxInt
}

// AdviseSpace says what to do if the disk lacks the space for one checkpoint. It is empty
// otherwise.
func AdviseSpace(c config.Config, ranks int) string {
	need := CheckpointBytes(c, ranks)
	free, ok := system.FreeSpace(c.Out)
	if !ok || free >= need {
		return ""
	}
	return fmt.Sprintf("; it needs about %s, and %s has %s of free space: free some there", system.Bytes(need), c.Out, system.Bytes(free))
}
