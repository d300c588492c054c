package save

// Room for the checkpoints of a run that keeps none besides the newest. Each is written next to the
// one before. If it fills the disk, the older one is deleted, provided that this makes enough room.

import (
	"errors"
	"syscall"
	"time"

	"spmoe/collective"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/system"
)

// room is what a rank knows of the room for the checkpoint that it saves.
type room struct {
	w              *checkpoint.Writer
	run            string
	part           int64 // bytes of this rank's part, at most
	met            bool  // the ranks have met in makeRoom
	failed, broken error
}

// makeRoom deletes the older checkpoint if the disk lacks room for the new one. Each rank calls it
// once: when its disk is full, or when its part is written, or with the reason why it is not. Then
// all ranks have written what they can, and the owner of a folder decides. It is collective.
func (s *Saver) makeRoom(full bool, err error) (failed, broken error) {
	r, owner := &s.room, s.folders.owner
	if r.met {
		return r.failed, r.broken
	}
	r.met = true
	defer func() { r.failed, r.broken = failed, broken }()
	if failed, broken = s.agree(err); failed != nil || broken != nil {
		return failed, broken
	}
	sums := make([]int64, 1+len(owner)) // bytes of all parts, and by folder how many ranks wait
	waiting := &sums[1+owner[s.comm.Host()]]
	if sums[0] = r.part; full {
		*waiting = 1
	}
	if broken := collective.AllReduce(s.comm, sums, collective.Sum); broken != nil {
		return nil, broken
	}
	need := sums[0] - r.w.Written() // every folder gets all parts
	free, known := system.FreeSpace(s.Cfg.Out)
	if *waiting > 0 {
		free, known = 0, true
	}
	lacks := s.folders.owns() && known && need > free
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

// mostWaits is how many seconds a disk may take to free what is deleted.
const mostWaits = 10

// write writes to a file of the checkpoint, and goes on when there is room again on a full disk.
func (r *room) write(s *Saver, to cancellableOutput, p []byte) (int, error) {
	n, err := to.Output.Write(p)
	for wait := 0; s.Cfg.Keep == 0 && wait < mostWaits && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)); wait++ {
		if r.met {
			time.Sleep(time.Second)
		} else if failed, broken := s.makeRoom(true, nil); failed != nil || broken != nil {
			return n, errors.Join(failed, broken)
		} else if to.shard {
			to.Reserve(r.part)
		}
		more, again := to.Output.Write(p[n:])
		n, err = n+more, again
	}
	return n, err
}
