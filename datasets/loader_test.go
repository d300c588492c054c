package datasets

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
)

func newLoader(t tb, s Stream, cfg LoaderConfig) *Loader {
	t.Helper()
	l, err := NewLoader(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// next returns the next rows of a rank, in new memory.
func next(l *Loader) []int32 {
	rows := make([]int32, l.cfg.GlobalBatch/l.cfg.Ranks*(l.cfg.Seq+1))
	l.Next(rows)
	return rows
}

// globalBatches returns, for each of steps steps, the rows of all ranks in rank order.
func globalBatches(t testing.TB, s Stream, cfg LoaderConfig, steps int) [][]int32 {
	t.Helper()
	batches := make([][]int32, steps)
	for cfg.Rank = range cfg.Ranks {
		l := newLoader(t, s, cfg)
		for i := range batches {
			batches[i] = append(batches[i], next(l)...)
		}
	}
	return batches
}

func TestEpochsAndSeedsDifferInOrder(t *testing.T) {
	const seq, windows = 4, 50
	s := countingStream(seq*windows + 1)
	cfg := LoaderConfig{Seq: seq, GlobalBatch: windows, Ranks: 1, Seed: 1}
	epochs := globalBatches(t, s, cfg, 2)
	cfg.Seed = 2
	other := globalBatches(t, s, cfg, 2)
	orders := [][]int32{epochs[0], epochs[1], other[0], other[1]}
	for i, a := range orders {
		for j, b := range orders[:i] {
			if slices.Equal(a, b) {
				t.Errorf("orders %d and %d are equal", j, i)
			}
		}
		if slices.IsSorted(a) {
			t.Errorf("order %d is that of the stream", i)
		}
	}
}

// TestPassesDoNotDependOnRanks: pass p of all ranks together is the p-th part of the global batch,
// in order. The last pass may be smaller.
func TestPassesDoNotDependOnRanks(t *testing.T) {
	const seq, batch = 5, 24
	s := countingStream(seq*50 + 3)
	want := globalBatches(t, s, LoaderConfig{Seq: seq, GlobalBatch: batch, Ranks: 1, Seed: 3}, 1)[0]
	for _, c := range []struct{ ranks, micro int }{{1, 5}, {2, 3}, {4, 1}, {4, 2}, {8, 2}, {8, 3}, {3, 100}} {
		cfg := LoaderConfig{Seq: seq, GlobalBatch: batch, Ranks: c.ranks, Micro: c.micro, Seed: 3}
		ranks := make([][]int32, c.ranks) // rows left of each
		for cfg.Rank = range ranks {
			ranks[cfg.Rank] = next(newLoader(t, s, cfg))
		}
		var got []int32
		for len(ranks[0]) > 0 {
			for r, rows := range ranks {
				n := min(c.micro*(seq+1), len(rows))
				got, ranks[r] = append(got, rows[:n]...), rows[n:]
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d ranks in passes of %d read %v, want %v", c.ranks, c.micro, got, want)
		}
	}
}

func TestRestoreRefusesAnotherRun(t *testing.T) {
	s := countingStream(101)
	l := newLoader(t, s, LoaderConfig{Seq: 5, GlobalBatch: 2, Ranks: 1, Seed: 8})
	next(l)
	here := l.State()
	for _, tc := range []struct {
		field  string
		change func(*State)
		want   []string
	}{
		{"fingerprint", func(s *State) { s.Fingerprint = "other data" }, []string{"other data", "counting to"}},
		{"fingerprint", func(s *State) { s.Fingerprint = "" }, []string{"other data"}},
		{"seq", func(s *State) { s.Seq = 6 }, []string{"length of 6", "it is 5"}},
		{"seed", func(s *State) { s.Seed = 9 }, []string{"seed 9", "it is 8"}},
		{"pos", func(s *State) { s.Pos = -1 }, []string{"-1"}},
		{"pos", func(s *State) { s.Pos = math.MaxInt64 }, []string{"damaged"}},
	} {
		state := here
		tc.change(&state)
		wantError(t, l.Restore(state), append(tc.want, tc.field+":")...)
		if l.State() != here {
			t.Fatalf("%s: a refused state moved the loader to %+v", tc.field, l.State())
		}
	}
}

func TestNewLoaderErrors(t *testing.T) {
	s := countingStream(100)
	for _, tc := range []struct {
		stream Stream
		cfg    LoaderConfig
		want   []string
	}{
		{s, LoaderConfig{Seq: 100, GlobalBatch: 1, Ranks: 1}, []string{"length of 100 needs 101 tokens", "has 100", "at most 99"}},
		{s, LoaderConfig{Seq: math.MaxInt, GlobalBatch: 1, Ranks: 1}, []string{"has 100", "at most 99"}},
		{s, LoaderConfig{Seq: 0, GlobalBatch: 1, Ranks: 1}, []string{"length is 0", "at least 1"}},
		{s, LoaderConfig{Seq: -3, GlobalBatch: 1, Ranks: 1}, []string{"length is -3"}},
		{s, LoaderConfig{Seq: 9, GlobalBatch: 12, Ranks: 8}, []string{"12 samples", "8 ranks", "such as 16"}},
		{s, LoaderConfig{Seq: 9, GlobalBatch: 0, Ranks: 2}, []string{"0 samples", "such as 2"}},
		{s, LoaderConfig{Seq: 9, GlobalBatch: -8, Ranks: 2}, []string{"-8 samples", "such as 2"}},
		{s, LoaderConfig{Seq: 9, GlobalBatch: 8, Rank: 2, Ranks: 2}, []string{"rank 2 of 2"}},
		{s, LoaderConfig{Seq: 9, GlobalBatch: 8, Rank: -1, Ranks: 2}, []string{"rank -1"}},
		{s, LoaderConfig{Seq: 9, GlobalBatch: 8}, []string{"of 0"}},
		{Stream{}, LoaderConfig{Seq: 9, GlobalBatch: 8, Ranks: 1}, []string{"0 tokens", "at least 2"}},
	} {
		_, err := NewLoader(tc.stream, tc.cfg)
		wantError(t, err, tc.want...)
	}
	// The length that the error suggests must load.
	if _, err := NewLoader(s, LoaderConfig{Seq: 99, GlobalBatch: 1, Ranks: 1}); err != nil {
		t.Error(err)
	}
}

func TestNextPanicsOnAWrongShape(t *testing.T) {
	l := newLoader(t, countingStream(100), LoaderConfig{Seq: 9, GlobalBatch: 4, Ranks: 2})
	for _, n := range []int{0, 18, 21, 40} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Next takes %d tokens, want a panic: a rank's part has 20", n)
				}
			}()
			l.Next(make([]int32, n))
		}()
	}
}

func TestEpoch(t *testing.T) {
	l := newLoader(t, countingStream(7*20+1), LoaderConfig{Seq: 7, GlobalBatch: 10, Rank: 1, Ranks: 2})
	for i, want := range []float64{0, 0.5, 1, 1.5} {
		if got := l.Epoch(); got != want {
			t.Errorf("epoch %v after %d steps, want %v", got, i, want)
		}
		next(l)
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	c, err := newCorpus(numbered(100, 40), 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Stream{"narrow": Tokenize(c.Train, Bytes{}), "wide": countingStream(500)} {
		l := newLoader(t, s, LoaderConfig{Seq: 16, GlobalBatch: 8, Rank: 1, Ranks: 2})
		rows := make([]int32, 4*17)
		if n := testing.AllocsPerRun(200, func() { l.Next(rows) }); n != 0 {
			t.Errorf("%s: Next allocates %v times", name, n)
		}
		if l.Epoch() < 2 {
			t.Errorf("%s: %v epochs, want the run to pass the end of one", name, l.Epoch())
		}
	}
}

// FuzzRestore hands Restore whatever a damaged checkpoint may hold: it refuses it, or the loader
// works and stands there.
func FuzzRestore(f *testing.F) {
	const seq, windows = 5, 20
	s := countingStream(seq*windows + 1)
	cfg := LoaderConfig{Seq: seq, GlobalBatch: 4, Rank: 1, Ranks: 2, Seed: 3}
	good, err := json.Marshal(State{Pos: 36, Seed: 3, Seq: seq, Fingerprint: s.fingerprint})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"pos":-1,"seed":3,"seq":5,"fingerprint":"counting to 101"}`))
	f.Add([]byte(`{"pos":4611686018427387903,"seed":3,"seq":5,"fingerprint":"counting to 101"}`))
	f.Add([]byte(`{"pos":1e30}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var state State
		if json.Unmarshal(data, &state) != nil {
			return
		}
		l := newLoader(t, s, cfg)
		before := l.State()
		if err := l.Restore(state); err != nil {
			if l.State() != before {
				t.Fatalf("a refused state moved the loader to %+v", l.State())
			}
			return
		}
		if l.State() != state {
			t.Fatalf("restored %+v, stands at %+v", state, l.State())
		}
		for row := range slices.Chunk(next(l), seq+1) {
			if row[0]%seq != 0 || row[seq] != row[0]+seq {
				t.Fatalf("%d is not a window", row)
			}
		}
	})
}
