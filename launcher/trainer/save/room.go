package save

// Room for the checkpoints of a run that keeps none besides the newest. Each is written next to the
// one before. If it fills the disk, the older one is deleted, provided that this makes enough room.

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"spmoe/collective"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/system"
)

// room is what a rank knows of the room for the checkpoint that it saves.
type room struct {
	w    *checkpoint.Writer
	run  string
	part int64 // bytes of this rank's part, at most
	met  bool  // the ranks have met in makeRoom
}

// makeRoom deletes the older checkpoint if the disk lacks room for the new one. Each rank calls it
// once: when its disk is full, or when its part is written, or with the reason why it is not. Then
// all ranks have written what they can, and rank 0 decides. It is collective.
func (s *Saver) makeRoom(full bool, err error) (failed, broken error) {
	r := &s.room
	r.met = true
	if failed, broken = s.agree(err); failed != nil || broken != nil {
		return failed, broken
	}
	sums := []int64{r.part, 0} // bytes of all parts, and how many ranks wait
	if full {
		sums[1] = 1
	}
	if broken := collective.AllReduce(s.comm, sums, collective.Sum); broken != nil {
		return nil, broken
	}
	need := sums[0] - r.w.Written()
	free, known := system.FreeSpace(s.Cfg.Out)
	if sums[1] > 0 {
		free, known = 0, true
	}
	lacks := s.comm.Rank() == 0 && known && need > free
	if lacks {
		err = checkpoint.CheckFreed(s.Cfg.Out, r.run, need-free)
	}
	if failed, broken = s.agree(err); failed != nil || broken != nil {
		return failed, broken
	}
	if lacks {
		err = checkpoint.Prune(s.Files, s.Cfg.Out, r.run, 0)
	}
	return s.agree(err)
}

// leastWrite is the smallest part of a write that a full disk is offered: a direct write may take
// all or nothing. mostWaits is how many seconds a disk may take to free what is deleted.
const leastWrite, mostWaits = 64 << 10, 10

// writeWithRoom writes to a file of a checkpoint, and goes on if a full disk can have room for it.
func (s *Saver) writeWithRoom(to runOutput, p []byte) (n int, err error) {
	most := len(p)
	for waits := 0; n < len(p); {
		more, err := to.write(p[n:min(n+most, len(p))])
		n += more
		full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
		switch {
		case err == nil:
		case !full || s.Cfg.Keep > 0 || waits == mostWaits:
			return n, err
		case most > leastWrite:
			most /= 2
		case s.room.met:
			time.Sleep(time.Second)
			waits++
		default:
			if failed, broken := s.makeRoom(true, nil); failed != nil || broken != nil {
				return n, errors.Join(failed, broken)
			}
			if most = len(p); strings.HasSuffix(to.path, ".safetensors") {
				to.Reserve(s.room.part)
			}
		}
	}
	return n, nil
}
