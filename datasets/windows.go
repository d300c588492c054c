package datasets

// The rows of an evaluation: the same windows of the validation stream every time, for any number
// of ranks.

import (
	"fmt"
	"iter"
	"math"
)

// WindowsConfig says what an evaluation reads. Everything except Rank is the same on every rank.
type WindowsConfig struct {
	Seq         int // tokens that a row predicts; it has one more
	Count       int // requested number of windows of all ranks
	Rank, Ranks int // this rank and the number of ranks
}

// Windows is a rank's part of the windows of an evaluation. Window i of n is window i*W/n of the W
// windows of the stream, so that they are spread evenly. They do not overlap, except for the one
// token that two adjacent windows share. In a mixture this holds for each part separately, and the
// parts follow each other.
type Windows struct {
	parts    []windowPart
	seq      int
	total    int64 // windows of the evaluation
	from, to int64 // this rank's part of them
}

// windowPart is the windows from a part of the stream.
type windowPart struct {
	stream   Stream
	in       int64 // windows of the part
	from, to int64 // windows of the evaluation that come from it
}

// NewWindows picks cfg.Count windows of s, or all if s has fewer, and returns this rank's share.
// Each part of a mixture contributes its share, rounded, but at least one. A stream shorter than
// one window is an error.
func NewWindows(s Stream, cfg WindowsConfig) (*Windows, error) {
	w := &Windows{seq: cfg.Seq}
	for _, p := range s.all() {
		in, err := p.stream.windows(cfg.Seq)
		if err != nil {
			return nil, fmt.Errorf("validation data: %w", err)
		}
		wanted := min(int64(cfg.Count), math.MaxInt64/(2*slots)) // more than any stream has
		count := max((wanted*p.slots+slots/2)/slots, 1)
		from := w.total
		w.total += min(count, in)
		w.parts = append(w.parts, windowPart{p.stream, in, from, w.total})
	}
	if err := checkRank(cfg.Rank, cfg.Ranks); err != nil {
		return nil, err
	}
	if cfg.Count < 1 {
		return nil, fmt.Errorf("an evaluation of %d windows: expected at least 1", cfg.Count)
	}
	w.from, w.to = share(w.total, cfg.Rank, cfg.Ranks)
	return w, nil
}

// Len returns the number of windows of this rank. It may be 0, and may differ by one between ranks.
func (w *Windows) Len() int { return int(w.to - w.from) }

// Total returns the number of windows of all ranks. A rank has at most Total/Ranks, rounded up.
func (w *Windows) Total() int { return int(w.total) }

// All reads this rank's windows in order. It fills dst, [Seq+1], with each one and yields its
// index, 0 to Len()-1.
func (w *Windows) All(dst []int32) iter.Seq[int] {
	if len(dst) != w.seq+1 {
		panic(fmt.Sprintf("datasets: window into %d tokens: expected %d", len(dst), w.seq+1))
	}
	return func(yield func(int) bool) {
		for i := range w.Len() {
			w.Read(dst, i)
			if !yield(i) {
				return
			}
		}
	}
}

// Read fills dst, [Seq+1], with window i of this rank, 0 to Len()-1. For the training part of a
// token file, ids are not checked: those of a damaged file may be outside its vocabulary.
func (w *Windows) Read(dst []int32, i int) {
	if i < 0 || i >= w.Len() || len(dst) != w.seq+1 {
		panic(fmt.Sprintf("datasets: window %d of %d into %d tokens: expected %d", i, w.Len(), len(dst), w.seq+1))
	}
	at := w.from + int64(i)
	p := w.parts[0]
	for k := 0; at >= p.to; k++ {
		p = w.parts[k+1]
	}
	// All validation ids of a token file were checked when it was opened.
	_ = p.stream.window(dst, (at-p.from)*p.in/(p.to-p.from))
}
