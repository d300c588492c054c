package datasets

// Reading ahead: the next batch is read while the current one is trained on, so that no step waits
// for a disk.

// Ahead hands out what a [Loader] reads, one batch ahead of it: a goroutine reads the next batch,
// page faults and all, as soon as the one before has been taken. The batches, and the position that
// [Ahead.State] gives, are those of the loader alone. An Ahead is used by one goroutine, and the
// loader must not be used beside it.
type Ahead struct {
	loader *Loader
	pos    int64 // of the batch that is read, while one is
	rows   []int32
	asked  chan int64 // positions to read from; closed at the end
	ready  chan error
	busy   bool // a batch is being read, or lies in rows
	closed bool

	late int // batches that were not there when they were asked for; the first never is
}

// NewAhead returns the loader's batches from its position on. Nothing is read before the first is
// asked for.
func NewAhead(l *Loader) *Ahead {
	return &Ahead{loader: l, ready: make(chan error, 1)}
}

// start begins to read the batch at the loader's position.
func (a *Ahead) start(tokens int) {
	if a.asked == nil {
		a.asked = make(chan int64)
		a.rows = make([]int32, tokens)
		go func(asked <-chan int64) {
			for pos := range asked {
				a.ready <- a.loader.read(a.rows, pos)
			}
			close(a.ready)
		}(a.asked)
	}
	a.pos, a.busy = a.loader.pos, true
	a.asked <- a.pos
}

// Next is [Loader.Next].
func (a *Ahead) Next(dst []int32) error {
	if a.closed {
		panic("datasets: Next after Close")
	}
	a.loader.check(dst)
	if a.busy && a.pos != a.loader.pos {
		<-a.ready // what was read is not wanted any more
		a.busy = false
	}
	if !a.busy || len(a.ready) == 0 {
		a.late++
	}
	if !a.busy {
		a.start(len(dst))
	}
	err := <-a.ready
	a.busy = false
	copy(dst, a.rows)
	a.loader.pos += int64(a.loader.cfg.GlobalBatch)
	if err == nil {
		a.start(len(dst))
	}
	return err
}

// State is [Loader.State]: what has been read ahead does not count.
func (a *Ahead) State() State { return a.loader.State() }

// Restore is [Loader.Restore]. What has been read ahead is dropped.
func (a *Ahead) Restore(s State) error { return a.loader.Restore(s) }

// Epoch is [Loader.Epoch].
func (a *Ahead) Epoch() float64 { return a.loader.Epoch() }

// Close ends the reading and waits for it. It may be called more than once; batches cannot be had
// afterwards.
func (a *Ahead) Close() {
	if a.asked != nil && !a.closed {
		close(a.asked)
		for range a.ready { // the batch that was read last
		}
	}
	a.closed = true
}
