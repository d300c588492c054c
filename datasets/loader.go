package datasets

// The loader of a rank: the windows of the training stream that it reads, and its position.

import (
	"fmt"
	"math"
)

// LoaderConfig says how a rank reads the training stream. Everything except Rank is the same on
// every rank.
type LoaderConfig struct {
	Seq         int    // tokens that a sample predicts; its row has one more
	GlobalBatch int    // samples per step of all ranks; a multiple of Ranks
	Rank, Ranks int    // this rank and the number of ranks
	Passes      []int  // samples per rank in each pass of a step; nil: they are one pass
	Seed        uint64 // of the order of the windows
}

// State is the position of a loader, for a checkpoint. It is the same on all ranks, and does not
// depend on their number or on the batch size. Both may change when a run is resumed.
type State struct {
	Pos         int64  `json:"pos"`             // samples consumed since the start by all ranks
	Start       int64  `json:"start,omitempty"` // those before the first of this stream
	Seed        uint64 `json:"seed"`
	Seq         int    `json:"seq"`
	Fingerprint string `json:"fingerprint"` // of the token stream
}

// Loader returns a rank's rows of each global batch.
//
// The stream is cut into windows of seq+1 tokens, seq apart, so that a token is a target once per
// epoch. Seed and epoch determine a permutation of the windows. Sample g is window g mod W of the
// permutation of epoch g / W, where W is the number of windows. A step takes the samples [Pos,
// Pos+B): the global batch does not depend on R, the number of ranks. A pass takes the next M*R of
// them, and rank r reads the M from r*M on. So pass p covers the same samples for all M and R with
// the same product. A Loader is
// not safe for concurrent use; loaders of several ranks may share a stream.
//
// In a mixture, the turns of a period of 10000 samples select the part of a sample, and the k-th
// sample of a part is that part's sample k in the sense above. By rules before [EpochRules], a
// permutation of the period selects the part, and k is the sample's place in it: the samples of a
// part are in the order of its epochs only from period to period.
type Loader struct {
	stream Stream
	cfg    LoaderConfig
	parts  []reader
	pos    int64
	start  int64   // see State
	slots  shuffle // of a mixture without turns
}

// reader is a part of the stream, and the order of its windows.
type reader struct {
	part
	windows int64
	order   shuffle
}

// shuffle is a permutation that changes in every epoch.
type shuffle struct{ n, seed uint64 }

func newShuffle(n int64, seed uint64) shuffle { return shuffle{uint64(n), seed} }

// at returns the place of item i, counted over all epochs.
func (s *shuffle) at(i int64) int64 {
	order := newPermutation(s.n, s.seed, uint64(i)/s.n)
	return int64(order.at(uint64(i) % s.n))
}

// NewLoader returns a loader at the start of the stream. It returns an error if the stream is
// shorter than a window, or if the ranks do not divide the batch.
func NewLoader(s Stream, cfg LoaderConfig) (*Loader, error) {
	l := &Loader{stream: s, cfg: cfg}
	for i, p := range s.all() {
		windows, err := p.stream.windows(cfg.Seq)
		if err != nil {
			return nil, err
		}
		seed := cfg.Seed
		if s.parts != nil {
			seed = SplitMix64(seed ^ SplitMix64(uint64(i))) // parts of the same length must not run in step
		}
		l.parts = append(l.parts, reader{p, windows, newShuffle(windows, seed)})
	}
	if s.parts != nil {
		l.slots = newShuffle(slots, SplitMix64(cfg.Seed^SplitMix64(slots)))
	}
	if err := checkRank(cfg.Rank, cfg.Ranks); err != nil {
		return nil, err
	}
	if cfg.GlobalBatch < 1 || cfg.GlobalBatch%cfg.Ranks != 0 {
		up := max(cfg.GlobalBatch+cfg.Ranks-1, cfg.Ranks) / cfg.Ranks * cfg.Ranks
		return nil, fmt.Errorf("a global batch of %d samples does not divide over %d ranks: use a multiple of %d, such as %d",
			cfg.GlobalBatch, cfg.Ranks, cfg.Ranks, up)
	}
	return l, nil
}

// Next fills dst with this rank's rows of the next global batch and advances by the whole batch.
//
// dst: [GlobalBatch/Ranks, Seq+1], pass after pass; inputs are columns 0 to Seq-1, targets columns
// 1 to Seq. It allocates nothing. Only damaged memory or a damaged token file causes an error.
func (l *Loader) Next(dst []int32) error {
	err := l.read(dst, l.pos)
	l.pos += int64(l.cfg.GlobalBatch)
	return err
}

// read fills dst with this rank's rows of the global batch at sample pos.
func (l *Loader) read(dst []int32, pos int64) error {
	l.check(dst)
	row, rank, ranks := l.cfg.Seq+1, int64(l.cfg.Rank), int64(l.cfg.Ranks)
	for pass := 0; len(dst) > 0; pass++ {
		n := int64(len(dst) / row) // of this pass
		if l.cfg.Passes != nil {
			n = int64(l.cfg.Passes[pass])
		}
		for i := range n {
			if err := l.sample(dst[:row], pos+rank*n+i); err != nil {
				return err
			}
			dst = dst[row:]
		}
		pos += n * ranks
	}
	return nil
}

// check panics unless a rank's rows fit into dst.
func (l *Loader) check(dst []int32) {
	rows, row := l.cfg.GlobalBatch/l.cfg.Ranks, l.cfg.Seq+1
	if len(dst) != rows*row {
		panic(fmt.Sprintf("datasets: Next into %d tokens: expected %d rows of %d, %d tokens", len(dst), rows, row, rows*row))
	}
}

// sample fills dst, [Seq+1], with sample g.
func (l *Loader) sample(dst []int32, g int64) error {
	part, i := l.pick(g - l.start)
	p := &l.parts[part]
	return p.stream.window(dst, p.order.at(i))
}

// pick returns the part of sample g, and the number of the sample within that part.
func (l *Loader) pick(g int64) (part int, i int64) {
	if l.stream.parts == nil {
		return 0, g
	}
	if l.stream.turns != nil {
		t := l.stream.turns[g%slots]
		return int(t.part), g/slots*l.parts[t.part].part.slots + int64(t.before)
	}
	slot := l.slots.at(g)
	for slot >= l.parts[part].before+l.parts[part].part.slots {
		part++
	}
	p := l.parts[part].part
	return part, g/slots*p.slots + slot - p.before
}

// State returns the position of the loader: the next batch was not read yet.
func (l *Loader) State() State {
	return State{
		Pos:         l.pos,
		Start:       l.start,
		Seed:        l.cfg.Seed,
		Seq:         l.cfg.Seq,
		Fingerprint: l.stream.fingerprint,
	}
}

// Restore continues from s. It refuses a state for other data, another tokenizer, sequence length
// or seed, which would repeat some samples and skip others. The loader then keeps its position.
func (l *Loader) Restore(s State) error {
	here := l.State()
	switch {
	case s.Fingerprint != here.Fingerprint:
		return fmt.Errorf("fingerprint: the checkpoint was trained on other data, or with another tokenizer or data_rules (%.12q, here %.12q): pass the same data, or start a new run",
			s.Fingerprint, here.Fingerprint)
	case s.Seq != here.Seq:
		return fmt.Errorf("seq: the checkpoint was trained with a sequence length of %d, here it is %d: use %d, or start a new run",
			s.Seq, here.Seq, s.Seq)
	case s.Seed != here.Seed:
		return fmt.Errorf("seed: the checkpoint was trained with data seed %d, here it is %d: use %d, or start a new run",
			s.Seed, here.Seed, s.Seed)
	case s.Start < 0 || s.Start > s.Pos || s.Pos > math.MaxInt64/2:
		return fmt.Errorf("pos: the checkpoint stands at sample %d, of data from sample %d on, which no run reaches: it is damaged, use another one", s.Pos, s.Start)
	}
	l.pos, l.start = s.Pos, s.Start
	return nil
}

// Epoch returns how many times the stream was read: 1.5 is half-way through the second time. For a
// mixture it is that of the part that is read most often.
func (l *Loader) Epoch() float64 {
	if l.stream.parts == nil {
		return float64(l.pos-l.start) / float64(l.parts[0].windows)
	}
	most := 0.0
	for i := range l.parts {
		p := &l.parts[i]
		most = max(most, float64(l.pos-l.start)*float64(p.part.slots)/slots/float64(p.windows))
	}
	return most
}
