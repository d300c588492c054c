package save

// Checkpoints that are written while training continues.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"spmoe/collective"
	"spmoe/internal/fault"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
)

// Saver writes a rank's part of checkpoints while training continues. At a step boundary it copies
// the state, and a goroutine writes the copy. The ranks' goroutines use a communicator of their
// own, and agree after each part of the work whether all of them succeeded. At most one save is in
// progress.
type Saver struct {
	comm      *collective.Comm
	folders   Folders
	lock      *system.FolderLock // of a folder that only this host has; nil: none
	held      *system.FolderLock // the folder that is written to
	Cfg       config.Config
	Files     checkpoint.Files
	ctx       context.Context
	cancel    context.CancelFunc      // makes writing fail
	allocated chan []checkpoint.Piece // delivers the memory for copies, once
	Copied    []checkpoint.Piece      // the memory of copies; nil: not yet allocated
	Pending   *pendingSave            // the save in progress; nil: none

	tokenizer []byte // the run's tokenizer.json; empty: none
	room      room   // for the save in progress

	// Corrupt, if not nil, is called with the pieces before they are copied or written: tests use
	// it to corrupt memory.
	Corrupt func([]checkpoint.Piece)
}

// runState is the part of a checkpoint that is not tensors.
type runState struct {
	step         int
	run          string
	sums         checkpoint.Sums // of this rank's state; nil: unknown
	Meta, Config []byte          // progress, config.toml
}

// pendingSave is a save whose result is not reported yet.
type pendingSave struct {
	State runState
	begin time.Time // of the time that training was paused
	Last  bool      // of the run
	stall time.Duration
	ended chan saveResult // receives one result
}

// saveResult is the result of a save.
type saveResult struct {
	*pendingSave
	lag    time.Duration // from begin until it was durable
	failed error         // why there is no checkpoint, the same on all ranks
	untidy error         // a problem despite a checkpoint, on the leading rank
	broken error         // why the ranks could not agree
}

// NewSaver creates the savers' communicator. It is collective.
func NewSaver(cfg config.Config, tokenizer []byte, files checkpoint.Files, held *system.FolderLock, c *collective.Comm) (*Saver, error) {
	own, err := c.Split(0, c.Rank())
	if err != nil {
		return nil, err
	}
	shared, err := findFolders(own, cfg.Out)
	if err != nil {
		return nil, err
	}
	lock, err := shared.lock(cfg.Out)
	if lock != nil {
		held = lock
	}
	if err == nil && shared.owns() && held.Check() == nil {
		err = system.Tidy(cfg.Out) // a rank may have been killed
	}
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	if files == nil {
		files = faulty{checkpoint.NewHeld(held)}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Saver{
		comm: own, folders: shared, lock: lock, held: held, Cfg: cfg, ctx: ctx, cancel: cancel, tokenizer: tokenizer,
	}
	s.Files = cancellable{files, ctx, own.Progress(), s}
	return s, nil
}

// AllocateCopies starts to allocate the memory for copies. The kernel provides memory page by page
// on the first write, which may take seconds. That must not delay the first save.
func (s *Saver) AllocateCopies(pieces []checkpoint.Piece) {
	s.allocated = make(chan []checkpoint.Piece, 1)
	go func() {
		const page = 4096
		room := checkpoint.Room(pieces)
		for _, p := range room {
			memory := p.Bytes()
			for i := 0; i < len(memory) && s.ctx.Err() == nil; i += page {
				memory[i] = 0
			}
		}
		s.allocated <- room
	}()
}

// Close waits until all goroutines of the saver have ended. No save may be in progress.
func (s *Saver) Close() {
	s.cancel()
	if s.allocated != nil && s.Copied == nil {
		<-s.allocated
	}
	s.lock.Release()
}

// Snapshot returns a copy of the pieces, which is valid until the next call.
func (s *Saver) Snapshot(pieces []checkpoint.Piece) []checkpoint.Piece {
	if s.Copied == nil {
		s.Copied = <-s.allocated
	}
	for i, p := range pieces {
		copy(s.Copied[i].Bytes(), p.Bytes())
		fault.Point(fault.InSnapshot)
	}
	return s.Copied
}

// start begins to save the pieces of this rank. ready is the reason why it cannot succeed, if this
// rank knows one. If the state is copied, it may change as soon as start returns, otherwise after
// wait.
func (s *Saver) start(state runState, pieces []checkpoint.Piece, ready error, begin time.Time, last bool) {
	if s.Corrupt != nil {
		s.Corrupt(pieces)
	}
	if s.Cfg.Copies() && !last {
		pieces = s.Snapshot(pieces)
	}
	f := &pendingSave{State: state, begin: begin, Last: last, ended: make(chan saveResult, 1)}
	s.Pending = f
	go func() {
		l := saveResult{pendingSave: f}
		if s.comm.Shared() { // a panic ends the process, as everywhere, and another process replaces the rank
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

// wait returns the result of the save in progress, which must exist.
func (s *Saver) wait() saveResult {
	l := <-s.Pending.ended
	if l.Last || !s.Cfg.Copies() {
		l.stall = time.Since(l.begin)
	}
	s.Pending = nil
	return l
}

// poll is wait if the save has ended.
func (s *Saver) poll() (l saveResult, ok bool) {
	if s.Pending == nil || len(s.Pending.ended) == 0 {
		return l, false
	}
	return s.wait(), true
}

// write does the work of a save: the rank that owns the folder begins it, all ranks write, and the
// owner completes it. If hosts have folders of their own, each folder is completed with copies of
// the other hosts' parts.
func (s *Saver) write(l *saveResult, pieces []checkpoint.Piece, ready error) (failed, broken error) {
	step, lead := int64(l.State.step), s.folders.owns()
	var w *checkpoint.Writer
	defer func() {
		// If the ranks did not agree that all are done, one may still be writing there. The next
		// writer removes the folder.
		if lead && w != nil && failed != nil && broken == nil {
			failed = errors.Join(failed, w.Abort())
		}
	}()
	err := ready
	if lead && err == nil {
		w, err = checkpoint.NewWriter(s.Files, s.Cfg.Out, step, s.comm.Size())
		if err == nil { // a killed launcher may have left one more than it keeps
			err = checkpoint.Prune(s.Files, s.Cfg.Out, l.State.run, s.Cfg.Kept())
		}
	}
	if failed, broken = s.agree(err); failed != nil || broken != nil {
		return failed, broken
	}
	if !lead {
		w, err = checkpoint.Join(s.Files, s.Cfg.Out, step, s.comm.Size())
	}
	s.room = room{w: w, run: l.State.run, part: checkpoint.PartBytes(pieces)}
	if lead {
		const progress = 16 << 10 // in the manifest
		s.room.part += int64(len(l.State.Config)+len(s.tokenizer)) + progress
	}
	if err == nil {
		err = w.WriteShard(s.comm.Rank(), pieces, l.State.sums)
	}
	if s.Cfg.Keep == 0 && !s.room.met {
		if failed, broken = s.makeRoom(false, err); broken != nil {
			return nil, broken
		}
		err = cmp.Or(err, failed)
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
		w.Run, w.Checks = l.State.run, []func(*checkpoint.Reader) error{state.CheckState}
		if err == nil {
			err = w.Commit(json.RawMessage(l.State.Meta), l.State.Config)
		}
		if err == nil {
			l.lag = time.Since(l.begin)
			if l.untidy = s.held.Check(); l.untidy == nil {
				l.untidy = errors.Join(
					checkpoint.Prune(s.Files, s.Cfg.Out, w.Run, s.Cfg.Kept()),
					system.WriteFile(filepath.Join(s.Cfg.Out, "config.toml"), l.State.Config))
			}
		}
	}
	return s.agree(err)
}

// copyParts completes the parts in every folder, if there are several.
func (s *Saver) copyParts(w *checkpoint.Writer) (failed, broken error) {
	if !s.folders.apart() {
		return nil, nil
	}
	if failed, broken = s.folders.copyParts(w); broken != nil {
		return failed, broken
	}
	return s.agree(failed)
}

// agree returns nil if err is nil on every rank. Otherwise it returns the error of the lowest rank
// that has one, on all ranks. broken says that the ranks could not communicate.
func (s *Saver) agree(err error) (failed, broken error) {
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
	var text [512]byte // zero on the other ranks; the first byte says that it is an ErrChanged
	if root == s.comm.Rank() {
		copy(text[1:], err.Error())
		if errors.Is(err, checkpoint.ErrChanged) {
			text[0] = 1
		}
	}
	if broken := collective.AllReduce(s.comm, text[:], collective.Max); broken != nil {
		return nil, broken
	}
	agreed := agreedError{string(bytes.ToValidUTF8(bytes.TrimRight(text[1:], "\x00"), nil)), nil}
	if text[0] == 1 {
		agreed.kind = checkpoint.ErrChanged
	}
	return agreed, nil
}

// agreedError is an error that one rank has told the others.
type agreedError struct {
	text string
	kind error // nil: any
}

func (e agreedError) Error() string { return e.text }

func (e agreedError) Unwrap() error { return e.kind }

// cancellable is a file system on which writes fail when ctx has ended. Writing is progress: a rank
// that waits for it is not hung.
type cancellable struct {
	checkpoint.Files
	ctx      context.Context
	progress *atomic.Uint64
	saver    *Saver
}

func (c cancellable) Create(path string) (checkpoint.Output, error) {
	out, err := c.Files.Create(path)
	return cancellableOutput{out, c, strings.HasSuffix(path, ".safetensors")}, err
}

type cancellableOutput struct {
	checkpoint.Output
	of    cancellable
	shard bool
}

func (o cancellableOutput) Write(p []byte) (int, error) {
	if err := o.of.ctx.Err(); err != nil {
		return 0, err
	}
	o.of.progress.Add(1)
	return o.of.saver.writeWithRoom(o, p)
}
