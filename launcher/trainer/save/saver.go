package save

// Checkpoints that are written while training continues.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
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
	held      *system.FolderLock // the run's folder
	Cfg       config.Config
	Files     checkpoint.Files
	ctx       context.Context
	cancel    context.CancelFunc      // makes writing fail
	allocated chan []checkpoint.Piece // delivers the memory for copies, once
	Copied    []checkpoint.Piece      // the memory of copies; nil: not yet allocated
	Pending   *pendingSave            // the save in progress; nil: none

	tokenizer []byte // the run's tokenizer.json; empty: none

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
	if err := checkShared(own, cfg.Out); err != nil {
		return nil, err
	}
	if own.Rank() == 0 && held.Check() == nil {
		if err := system.Tidy(cfg.Out); err != nil { // a rank may have been killed
			return nil, err
		}
	}
	if files == nil {
		files = checkpoint.Disk{Folder: held}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Saver{
		comm:      own,
		held:      held,
		Cfg:       cfg,
		ctx:       ctx,
		cancel:    cancel,
		tokenizer: tokenizer,
	}
	s.Files = runFiles{files, s}
	return s, nil
}

// AllocateCopies starts to allocate the memory for copies. The kernel provides memory page by page
// on the first write, which may take seconds. That must not delay the first save.
func (s *Saver) AllocateCopies(pieces []checkpoint.Piece) {
	s.allocated = make(chan []checkpoint.Piece, 1)
	go func() {
		const page = 4096
		room := slices.Clone(pieces)
		for i := range room {
			p := &room[i]
			if p.BF16 != nil {
				p.BF16 = make([]byte, len(p.BF16))
			} else {
				p.Data = make([]float32, len(p.Data))
			}
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
	f := &pendingSave{
		State: state,
		begin: begin,
		Last:  last,
		ended: make(chan saveResult, 1),
	}
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

// write does the work of a save. A run that keeps no older checkpoint gives it up if the disk has
// no room for both.
func (s *Saver) write(l *saveResult, pieces []checkpoint.Piece, ready error) (failed, broken error) {
	failed, broken = s.attempt(l, pieces, ready, s.Cfg.Kept())
	if full := errors.Is(failed, syscall.ENOSPC) || errors.Is(failed, syscall.EDQUOT); full && s.Cfg.Keep == 0 {
		return s.attempt(l, pieces, ready, 0)
	}
	return failed, broken
}

// attempt writes a checkpoint while as many older ones are kept: rank 0 begins it, all ranks write,
// and rank 0 completes it.
func (s *Saver) attempt(l *saveResult, pieces []checkpoint.Piece, ready error, kept int) (failed, broken error) {
	step, lead := int64(l.State.step), s.comm.Rank() == 0
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
			err = checkpoint.Prune(s.Files, s.Cfg.Out, l.State.run, kept)
		}
	}
	if failed, broken = s.agree(err); failed != nil || broken != nil {
		return failed, broken
	}
	if !lead {
		w, err = checkpoint.Join(s.Files, s.Cfg.Out, step, s.comm.Size())
	}
	if err == nil {
		err = w.WriteShard(s.comm.Rank(), pieces, l.State.sums)
	}
	if failed, broken = s.agree(err); failed != nil || broken != nil {
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

// agree returns nil if err is nil on every rank. Otherwise it returns the error of the lowest rank
// that has one, on all ranks. broken says that the ranks could not communicate.
func (s *Saver) agree(err error) (failed, broken error) {
	text := ""
	if err != nil {
		kind := slices.IndexFunc(agreedKinds, func(kind error) bool { return errors.Is(err, kind) })
		text = string(rune('1'+kind)) + err.Error()
	}
	texts, broken := state.GatherTexts(s.comm, text)
	for _, text := range texts {
		if text == "" {
			continue
		}
		agreed := agreedError{text: text[1:]}
		if kind := int(text[0] - '0'); kind > 0 {
			agreed.kind = agreedKinds[kind-1]
		}
		return agreed, nil
	}
	return nil, broken
}

// agreedKinds are the kinds of errors that the ranks tell apart.
var agreedKinds = []error{checkpoint.ErrChanged, syscall.ENOSPC, syscall.EDQUOT}

// agreedError is an error that one rank has told the others.
type agreedError struct {
	text string
	kind error // nil: any
}

func (e agreedError) Error() string { return e.text }

func (e agreedError) Unwrap() error { return e.kind }

// checkShared returns an error unless all hosts write to the same run folder. Every host writes a
// mark there and looks for that of the first host. It is collective.
func checkShared(c *collective.Comm, dir string) (failed error) {
	hosts, here := c.Hosts(), c.Host()
	if len(hosts) == 1 {
		return nil
	}
	mark := func(host int) string { return fmt.Sprintf(".host-%d", host) }
	leads := hosts[here][0] == c.Rank()
	if leads {
		var file *os.File
		if file, failed = system.OpenOwn(dir, mark(here), os.O_WRONLY|os.O_CREATE); failed == nil {
			failed = file.Close()
		}
	}
	if err := c.Barrier(); err != nil {
		return err
	}
	apart := make([]int64, len(hosts))
	if leads && failed == nil { // a network file system shows the files of others after a local change
		if _, err := os.Lstat(filepath.Join(dir, mark(0))); err != nil {
			apart[here] = 1
		}
	}
	if err := collective.AllReduce(c, apart, collective.Max); err != nil {
		return err
	}
	if leads && failed == nil {
		failed = os.Remove(filepath.Join(dir, mark(here)))
	}
	if h := slices.Index(apart, 1); h >= 0 && failed == nil {
		return fmt.Errorf("%s of %s is not the folder of %s: give --out on a file system that all hosts share",
			dir, c.Placement().Describe(hosts[h][0]), c.Placement().Describe(0))
	}
	return failed
}
