package trainer

// Checkpoints that are written while training goes on.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"spmoe/collective"
	"spmoe/internal/fault"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/system"
)

// saver writes a rank's part of checkpoints while training goes on: at a step boundary it copies
// the state, and a goroutine writes the copy. The ranks' goroutines meet on a communicator of their
// own, and agree after every part of the work whether all of them could do it. One save is in
// flight at most.
type saver struct {
	comm    *collective.Comm
	folders folders
	cfg     Config
	files   checkpoint.Files
	ctx     context.Context
	cancel  context.CancelFunc      // makes writing fail
	room    chan []checkpoint.Piece // gives where the copy goes, once
	copied  []checkpoint.Piece      // where the copy is; nil: there was none yet
	pending *pendingSave            // the save in flight; nil: none

	tokenizer []byte // the run's tokenizer.json; nil: it has none
}

// runState is what a checkpoint holds besides tensors.
type runState struct {
	progress progress
	config   []byte
}

// pendingSave is a save that has not been reported on.
type pendingSave struct {
	state runState
	begin time.Time // of the time that training was held up
	last  bool      // of the run
	stall time.Duration
	ended chan saveResult // gets one
}

// saveResult is how a save has ended.
type saveResult struct {
	*pendingSave
	lag    time.Duration // from begin until it was durable
	failed error         // why there is no checkpoint, on all ranks alike
	untidy error         // what went wrong when there was one, on the rank that leads
	broken error         // why the ranks could not agree
}

// newSaver is collective: it makes the savers' communicator.
func newSaver(cfg Config, c *collective.Comm, files checkpoint.Files, tokenizer []byte) (*saver, error) {
	own, err := c.Split(0, c.Rank())
	if err != nil {
		return nil, err
	}
	shared, err := findFolders(own, cfg.Out)
	if err == nil && shared.owns() {
		err = system.Tidy(cfg.Out) // a rank may have been killed
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &saver{comm: own, folders: shared, cfg: cfg, files: cancellable{files, ctx, own.Progress()}, ctx: ctx, cancel: cancel, tokenizer: tokenizer}, nil
}

// copies reports whether the state is copied, so that training can go on while it is written. At
// the end of a run it could not.
func (c Config) copies() bool { return c.SaveAsync && c.SaveEvery > 0 }

// makeRoom begins to make the memory for copies. The kernel hands out memory page by page, as it is
// first written, which may take seconds: that is not to hold up the first save.
func (s *saver) makeRoom(pieces []checkpoint.Piece) {
	s.room = make(chan []checkpoint.Piece, 1)
	go func() {
		const page = 4096
		room := checkpoint.Room(pieces)
		for _, p := range room {
			memory := p.Bytes()
			for i := 0; i < len(memory) && s.ctx.Err() == nil; i += page {
				memory[i] = 0
			}
		}
		s.room <- room
	}()
}

// close waits until nothing of the saver runs any more. There must be no save in flight.
func (s *saver) close() {
	s.cancel()
	if s.room != nil && s.copied == nil {
		<-s.room
	}
}

// snapshot returns a copy of the pieces, which is valid until the next one.
func (s *saver) snapshot(pieces []checkpoint.Piece) []checkpoint.Piece {
	if s.copied == nil {
		s.copied = <-s.room
	}
	for i, p := range pieces {
		copy(s.copied[i].Bytes(), p.Bytes())
		fault.Point(fault.InSnapshot)
	}
	return s.copied
}

// start begins to save the pieces that this rank holds; ready is why it cannot succeed, if this
// rank knows. If the state is copied it may change as soon as start returns, otherwise when wait
// has.
func (s *saver) start(state runState, pieces []checkpoint.Piece, ready error, begin time.Time, last bool) {
	if s.cfg.copies() && !last {
		pieces = s.snapshot(pieces)
	}
	f := &pendingSave{state: state, begin: begin, last: last, ended: make(chan saveResult, 1)}
	s.pending = f
	go func() {
		l := saveResult{pendingSave: f}
		if s.comm.Shared() { // a panic ends the process, as anywhere else, and another one takes the rank's place
			l.failed, l.broken = s.write(&l, pieces, ready)
			f.ended <- l
			return
		}
		defer func() {
			if p := recover(); p != nil {
				l.broken = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			f.ended <- l
		}()
		l.failed, l.broken = s.write(&l, pieces, ready)
	}()
	f.stall = time.Since(begin)
}

// wait returns how the save in flight, which there must be, has ended.
func (s *saver) wait() saveResult {
	l := <-s.pending.ended
	if l.last || !s.cfg.copies() {
		l.stall = time.Since(l.begin)
	}
	s.pending = nil
	return l
}

// poll is wait if the save has ended.
func (s *saver) poll() (l saveResult, ok bool) {
	if s.pending == nil || len(s.pending.ended) == 0 {
		return l, false
	}
	return s.wait(), true
}

// write does the work of a save: the rank that owns the folder begins it, all write, and the one
// that owns it completes it. Where hosts have folders of their own, each is completed with copies
// of the others' parts.
func (s *saver) write(l *saveResult, pieces []checkpoint.Piece, ready error) (failed, broken error) {
	step, lead := int64(l.state.progress.Step), s.folders.owns()
	var w *checkpoint.Writer
	defer func() {
		// Without an agreement, a rank may still be writing there: the next writer clears it away.
		if lead && w != nil && failed != nil && broken == nil {
			failed = errors.Join(failed, w.Abort())
		}
	}()
	err := ready
	if lead && err == nil {
		w, err = checkpoint.NewWriter(s.files, s.cfg.Out, step, s.comm.Size())
	}
	if failed, broken = s.agree(err); failed != nil || broken != nil {
		return failed, broken
	}
	if !lead {
		w, err = checkpoint.Join(s.files, s.cfg.Out, step, s.comm.Size())
	}
	if err == nil {
		err = w.WriteShard(s.comm.Rank(), pieces)
	}
	if failed, broken = s.agree(err); failed != nil || broken != nil {
		return failed, broken
	}
	if failed, broken = s.copyParts(w); failed != nil || broken != nil {
		return failed, broken
	}
	if lead {
		if s.tokenizer != nil {
			err = w.WriteTokenizer(s.tokenizer)
		}
		if err == nil {
			err = w.Commit(l.state.progress, l.state.config)
		}
		if err == nil {
			l.lag = time.Since(l.begin)
			l.untidy = errors.Join(
				system.WriteFile(filepath.Join(s.cfg.Out, "config.toml"), l.state.config),
				checkpoint.Prune(s.files, s.cfg.Out, s.cfg.Keep))
		}
	}
	return s.agree(err)
}

// copyParts completes the parts in every folder, if there are several.
func (s *saver) copyParts(w *checkpoint.Writer) (failed, broken error) {
	if !s.folders.apart() {
		return nil, nil
	}
	if failed, broken = s.folders.copyParts(w); broken != nil {
		return failed, broken
	}
	return s.agree(failed)
}

// agree returns nil if err is nil on every rank, and otherwise the error of the lowest rank that
// has one, on all of them. broken says that the ranks could not meet.
func (s *saver) agree(err error) (failed, broken error) {
	first := [1]int64{int64(s.comm.Size())}
	if err != nil {
		first[0] = int64(s.comm.Rank())
	}
	if broken := collective.AllReduce(s.comm, first[:], collective.Min); broken != nil {
		return nil, broken
	}
	root := int(first[0])
	if root == s.comm.Size() {
		return nil, nil
	}
	var text [512]byte
	if root == s.comm.Rank() {
		copy(text[:], err.Error())
	}
	if broken := collective.Bcast(s.comm, text[:], root); broken != nil {
		return nil, broken
	}
	return errors.New(string(bytes.ToValidUTF8(bytes.TrimRight(text[:], "\x00"), nil))), nil
}

// cancellable is a file system on which nothing more is written when ctx has ended. Writing is
// progress: a rank that waits for it does not hang.
type cancellable struct {
	checkpoint.Files
	ctx      context.Context
	progress *atomic.Uint64
}

func (c cancellable) Create(path string) (checkpoint.Output, error) {
	out, err := c.Files.Create(path)
	return cancellableOutput{out, c}, err
}

type cancellableOutput struct {
	checkpoint.Output
	of cancellable
}

func (o cancellableOutput) Write(p []byte) (int, error) {
	if err := o.of.ctx.Err(); err != nil {
		return 0, err
	}
	o.of.progress.Add(1)
	return o.Output.Write(p)
}
