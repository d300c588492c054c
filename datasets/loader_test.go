package datasets

import (
	"encoding/json"
	"math"
	"slices"
	"sync"
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

func TestEveryTokenIsATargetOnceAnEpoch(t *testing.T) {
	const seq, windows, batch = 7, 24, 4
	for _, extra := range []int{0, 1, seq - 1} { // tokens too few for another window
		s := countingStream(seq*windows + 1 + extra)
		targets := make([]int, s.Len())
		for epoch := 1; epoch <= 3; epoch++ {
			for _, rows := range globalBatches(t, s, LoaderConfig{Seq: seq, GlobalBatch: batch, Ranks: 2, Seed: 9}, epoch*windows/batch)[(epoch-1)*windows/batch:] {
				for row := range slices.Chunk(rows, seq+1) {
					for i, target := range row[1:] {
						if target != row[i]+1 {
							t.Fatalf("row %d is not a window of the stream", row)
						}
						targets[target]++
					}
				}
			}
			for token, n := range targets {
				want := epoch
				if token == 0 || token > seq*windows {
					want = 0
				}
				if n != want {
					t.Fatalf("after %d epochs token %d was a target %d times, want %d", epoch, token, n, want)
				}
			}
		}
	}
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

func TestGlobalBatchDoesNotDependOnRanks(t *testing.T) {
	const seq, batch, steps = 5, 24, 9
	s := countingStream(seq*50 + 3) // 50 windows: batches run over the ends of epochs
	cfg := LoaderConfig{Seq: seq, GlobalBatch: batch, Ranks: 1, Seed: 3}
	want := globalBatches(t, s, cfg, steps)
	for _, ranks := range []int{2, 3, 4, 6, 8, 12, 24} {
		cfg.Ranks = ranks
		for i, got := range globalBatches(t, s, cfg, steps) {
			if !slices.Equal(got, want[i]) {
				t.Errorf("%d ranks read another batch at step %d", ranks, i)
			}
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

// TestResumeRepeatsAndSkipsNothing interrupts a run at every step, through JSON, and goes on with
// every number of ranks.
func TestResumeRepeatsAndSkipsNothing(t *testing.T) {
	const seq, batch, steps = 6, 8, 12
	s := countingStream(seq*37 + 1)
	want := globalBatches(t, s, LoaderConfig{Seq: seq, GlobalBatch: batch, Ranks: 1, Seed: 4}, steps)
	for _, before := range []int{1, 2, 4, 8} {
		for _, after := range []int{1, 2, 4, 8} {
			for stop := range steps + 1 {
				first := newLoader(t, s, LoaderConfig{Seq: seq, GlobalBatch: batch, Rank: before - 1, Ranks: before, Seed: 4})
				for range stop {
					next(first)
				}
				saved, err := json.Marshal(first.State())
				if err != nil {
					t.Fatal(err)
				}
				got := make([][]int32, steps-stop)
				for rank := range after {
					l := newLoader(t, s, LoaderConfig{Seq: seq, GlobalBatch: batch, Rank: rank, Ranks: after, Seed: 4})
					next(l) // Restore must undo what was read before
					var state State
					if err := json.Unmarshal(saved, &state); err != nil {
						t.Fatal(err)
					}
					if err := l.Restore(state); err != nil {
						t.Fatal(err)
					}
					if l.State() != first.State() {
						t.Fatalf("state %+v after restoring %+v", l.State(), first.State())
					}
					for i := range got {
						got[i] = append(got[i], next(l)...)
					}
				}
				for i := range got {
					if !slices.Equal(got[i], want[stop+i]) {
						t.Fatalf("%d ranks, stopped at %d, %d ranks: another batch at step %d", before, stop, after, stop+i)
					}
				}
			}
		}
	}
}

// TestResumeWithAnotherBatchSize reads on, sample by sample, where the first run stopped.
func TestResumeWithAnotherBatchSize(t *testing.T) {
	const seq = 3
	s := countingStream(seq*20 + 1)
	want := globalBatches(t, s, LoaderConfig{Seq: seq, GlobalBatch: 60, Ranks: 1}, 1)[0]
	l := newLoader(t, s, LoaderConfig{Seq: seq, GlobalBatch: 7, Ranks: 1})
	got := append(next(l), next(l)...)
	m := newLoader(t, s, LoaderConfig{Seq: seq, GlobalBatch: 23, Ranks: 1})
	if err := m.Restore(l.State()); err != nil {
		t.Fatal(err)
	}
	got = append(append(got, next(m)...), next(m)...)
	if !slices.Equal(got, want) {
		t.Error("14 samples in batches of 7 and 46 in batches of 23 are not the first 60")
	}
}

// TestRestoreGoesBack takes a loader back over the end of an epoch, as a run does that recovers
// from an earlier save.
func TestRestoreGoesBack(t *testing.T) {
	const seq = 4
	l := newLoader(t, countingStream(seq*10+1), LoaderConfig{Seq: seq, GlobalBatch: 5, Ranks: 1, Seed: 2})
	start, first := l.State(), next(l)
	for range 5 {
		next(l)
	}
	if err := l.Restore(start); err != nil {
		t.Fatal(err)
	}
	if again := next(l); !slices.Equal(again, first) {
		t.Errorf("after going back the first batch is %d, want %d", again, first)
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

// TestRanksShareAStream runs the ranks as goroutines, for the race detector.
func TestRanksShareAStream(t *testing.T) {
	const ranks, steps = 8, 20
	c, err := newCorpus(numbered(100, 40), 0)
	if err != nil {
		t.Fatal(err)
	}
	s := Tokenize(c.Train, Bytes{})
	cfg := LoaderConfig{Seq: 32, GlobalBatch: 16, Ranks: 1, Seed: 6}
	want := globalBatches(t, s, cfg, steps)
	cfg.Ranks = ranks
	var got [ranks][][]int32
	var group sync.WaitGroup
	for rank := range ranks {
		l := newLoader(t, s, LoaderConfig{Seq: 32, GlobalBatch: 16, Rank: rank, Ranks: ranks, Seed: 6})
		group.Go(func() {
			for range steps {
				got[rank] = append(got[rank], next(l))
			}
		})
	}
	group.Wait()
	for step := range steps {
		var batch []int32
		for rank := range ranks {
			batch = append(batch, got[rank][step]...)
		}
		if !slices.Equal(batch, want[step]) {
			t.Fatalf("ranks side by side read another batch at step %d", step)
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

// TestChangedText: no window of text that has changed in memory is used, and all others are.
func TestChangedText(t *testing.T) {
	const seq, tokens = 50, 20*sealedBytes + 13
	narrow := Stream{narrow: make([]byte, tokens)}
	for name, s := range map[string]Stream{"narrow": narrow.sealed(), "wide": countingStream(tokens).sealed()} {
		cfg := LoaderConfig{Seq: seq, GlobalBatch: 1, Ranks: 1}
		l, dst := newLoader(t, s, cfg), make([]int32, seq+1)
		refused := func() (n int) {
			for l.pos = 0; l.pos < l.parts[0].windows; {
				if err := l.Next(dst); err != nil {
					wantError(t, err, "the text has changed in memory", "--resume")
					n++
				}
			}
			return n
		}
		if n := refused(); n != 0 {
			t.Errorf("%s: %d windows refused", name, n)
		}
		s.memory()[len(s.memory())-1000] ^= 4 // of the last whole block or the one after it
		perBlock := sealedBytes * tokens / len(s.memory()) / seq
		if n := refused(); n < 1 || n > perBlock+2 {
			t.Errorf("%s: %d windows refused, of %d in a block", name, n, perBlock)
		}
	}
}
