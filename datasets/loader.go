package datasets

// The loader of a rank: which windows of the training stream it reads, and where it stands.

import (
	"fmt"
	"math"
)

// LoaderConfig is how a rank reads the training stream. All but Rank is the same on every rank.
type LoaderConfig struct {
	Seq         int    // tokens a sample predicts; its row has one more
	GlobalBatch int    // samples of a step, all ranks together; a multiple of Ranks
	Rank, Ranks int    // this rank and the number of ranks
	Seed        uint64 // of the order of the windows
}

// State is the position of a loader, for a checkpoint. It is the same on all ranks, and depends neither on their number
// nor on the batch size: both may change when a run is resumed.
type State struct {
	Pos         int64  `json:"pos"` // samples consumed since the start, all ranks together
	Seed        uint64 `json:"seed"`
	Seq         int    `json:"seq"`
	Fingerprint string `json:"fingerprint"` // of the token stream
}

// Loader hands a rank its rows of each global batch.
//
// The stream is cut into windows of seq+1 tokens, seq apart: a token is a target once an epoch. Seed and epoch fix a
// permutation of the windows; sample g is window g mod W of the permutation of epoch g / W, where W is the number of
// windows. A step takes the samples [Pos, Pos+B), of which rank r of R reads [Pos + r*B/R, Pos + (r+1)*B/R): the global
// batch does not depend on R. A Loader is used by one goroutine; loaders of several ranks may share a stream.
type Loader struct {
	stream  Stream
	cfg     LoaderConfig
	windows int64
	pos     int64
	epoch   int64 // of order
	order   permutation
}

// NewLoader returns a loader at the start of the stream. A stream shorter than a window and a batch that the ranks do
// not divide are errors.
func NewLoader(s Stream, cfg LoaderConfig) (*Loader, error) {
	windows, err := s.windows(cfg.Seq)
	if err != nil {
		return nil, err
	}
	if err := checkRank(cfg.Rank, cfg.Ranks); err != nil {
		return nil, err
	}
	if cfg.GlobalBatch < 1 || cfg.GlobalBatch%cfg.Ranks != 0 {
		up := max(cfg.GlobalBatch+cfg.Ranks-1, cfg.Ranks) / cfg.Ranks * cfg.Ranks
		return nil, fmt.Errorf("a global batch of %d samples does not divide over %d ranks: use a multiple of %d, such as %d",
			cfg.GlobalBatch, cfg.Ranks, cfg.Ranks, up)
	}
	l := &Loader{stream: s, cfg: cfg, windows: windows}
	l.order = newPermutation(uint64(windows), cfg.Seed, 0)
	return l, nil
}

// Next fills dst with this rank's rows of the next global batch and moves on by the whole batch.
//
// dst: [GlobalBatch/Ranks, Seq+1]; inputs are columns 0 to Seq-1, targets columns 1 to Seq. It allocates nothing.
func (l *Loader) Next(dst []int32) {
	from, to := share(int64(l.cfg.GlobalBatch), l.cfg.Rank, l.cfg.Ranks)
	row := l.cfg.Seq + 1
	if want := int(to-from) * row; len(dst) != want {
		panic(fmt.Sprintf("datasets: Next into %d tokens: expected %d rows of %d, %d tokens", len(dst), to-from, row, want))
	}
	for g := l.pos + from; g < l.pos+to; g++ {
		if epoch := g / l.windows; epoch != l.epoch {
			l.epoch, l.order = epoch, newPermutation(uint64(l.windows), l.cfg.Seed, uint64(epoch))
		}
		l.stream.window(dst[:row], int64(l.order.at(uint64(g%l.windows))))
		dst = dst[row:]
	}
	l.pos += int64(l.cfg.GlobalBatch)
}

// State returns where the loader stands: the next batch has not been read.
func (l *Loader) State() State {
	return State{Pos: l.pos, Seed: l.cfg.Seed, Seq: l.cfg.Seq, Fingerprint: l.stream.fingerprint}
}

// Restore continues from s. A state of other data, another tokenizer, sequence length or seed would repeat some samples
// and skip others: it is refused, and the loader stays where it was.
func (l *Loader) Restore(s State) error {
	here := l.State()
	switch {
	case s.Fingerprint != here.Fingerprint:
		return fmt.Errorf("fingerprint: the checkpoint was trained on other data or with another tokenizer (%.12q, here %.12q): pass the same data, or start a new run",
			s.Fingerprint, here.Fingerprint)
	case s.Seq != here.Seq:
		return fmt.Errorf("seq: the checkpoint was trained with a sequence length of %d, here it is %d: use %d, or start a new run",
			s.Seq, here.Seq, s.Seq)
	case s.Seed != here.Seed:
		return fmt.Errorf("seed: the checkpoint was trained with data seed %d, here it is %d: use %d, or start a new run",
			s.Seed, here.Seed, s.Seed)
	case s.Pos < 0 || s.Pos > math.MaxInt64/2:
		return fmt.Errorf("pos: the checkpoint stands at sample %d, which no run reaches: it is damaged, use another one", s.Pos)
	}
	l.pos = s.Pos
	return nil
}

// Epoch returns how many times the stream has been read: 1.5 is half-way through the second time.
func (l *Loader) Epoch() float64 { return float64(l.pos) / float64(l.windows) }
