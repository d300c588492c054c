package datasets

import "fmt"

// Prefetching: the next batch is read while the current one is trained on, so that no step waits
// for a disk.

// Ahead prefetches one batch of a [Loader]. A goroutine reads the next batch, including page
// faults, as soon as the previous one was taken. The batches, and the position that [Ahead.State]
// returns, are those of the loader alone. An Ahead is not safe for concurrent use, and the loader
// must not be used directly.
type Ahead struct {
	*Loader       // whose State and Epoch do not count what was read ahead
	pos     int64 // of the batch that is being read
	rows    []int32
	asked   chan int64 // positions to read from; closed at the end
	ready   chan error // of reading a batch
	busy    bool       // a batch is being read, or is in rows
	closed  bool
}

// NewAhead returns the loader's batches from its position on. It reads nothing before the first one
// is requested.
func NewAhead(l *Loader) *Ahead {
	return &Ahead{Loader: l, ready: make(chan error, 1)}
}

// start starts to read the batch at the loader's position.
func (a *Ahead) start(tokens int) {
	if a.asked == nil {
		a.asked = make(chan int64)
		a.rows = make([]int32, tokens)
		go func(asked <-chan int64) {
			for pos := range asked {
				a.ready <- a.read(pos)
			}
			close(a.ready)
		}(a.asked)
	}
	a.pos, a.busy = a.Loader.pos, true
	a.asked <- a.pos
}

// read reads the batch at a position. A panic would end all ranks of the process.
func (a *Ahead) read(pos int64) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("reading the next batch: panic: %v", cause)
		}
	}()
	return a.Loader.read(a.rows, pos)
}

// Continue continues from sample pos. If again is set, it forgets what was read ahead, which may be
// wrong.
func (a *Ahead) Continue(pos int64, again bool) {
	if a.Loader.pos = pos; again {
		a.pos = -1
	}
}

// Next is [Loader.Next].
func (a *Ahead) Next(dst []int32) error {
	if a.closed {
		panic("datasets: Next after Close")
	}
	a.Loader.check(dst)
	if a.busy && a.pos != a.Loader.pos {
		<-a.ready // what was read is no longer needed
		a.busy = false
	}
	if !a.busy {
		a.start(len(dst))
	}
	err := <-a.ready
	a.busy = false
	copy(dst, a.rows)
	a.Loader.pos += int64(a.Loader.cfg.GlobalBatch)
	if err == nil {
		a.start(len(dst))
	}
	return err
}

// Restore is [Loader.Restore]. It drops what was read ahead.
func (a *Ahead) Restore(s State) error {
	if a.busy {
		<-a.ready
		a.busy = false
	}
	return a.Loader.Restore(s)
}

// Close ends the reading and waits for it. It may be called more than once. Next must not be called
// afterwards.
func (a *Ahead) Close() {
	if a.asked != nil && !a.closed {
		close(a.asked)
		for range a.ready { // the batch that was read last
		}
	}
	a.closed = true
}
