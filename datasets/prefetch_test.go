package datasets

import (
	"runtime"
	"slices"
	"testing"
)

// TestAheadReadsWhileAStepIsMade: the next batch is read before it is asked for.
func TestAheadReadsWhileAStepIsMade(t *testing.T) {
	const seq = 4
	a := NewAhead(newLoader(t, countingStream(seq*1000+1), LoaderConfig{Seq: seq, GlobalBatch: 1, Ranks: 1}))
	defer a.Close()
	for range 9 {
		if err := a.Next(make([]int32, seq+1)); err != nil {
			t.Fatal(err)
		}
		for len(a.ready) == 0 { // the step: without reading ahead it does not end
			runtime.Gosched()
		}
	}
}

// TestAheadStops: closing ends the goroutine, whether or not a batch is under way, and may be done
// twice.
func TestAheadStops(t *testing.T) {
	for _, batches := range []int{0, 1, 3} {
		a := NewAhead(newLoader(t, countingStream(100), LoaderConfig{Seq: 4, GlobalBatch: 1, Ranks: 1}))
		for range batches {
			if err := a.Next(make([]int32, 5)); err != nil {
				t.Fatal(err)
			}
		}
		a.Close()
		if batches > 0 {
			if _, open := <-a.ready; open {
				t.Error("the goroutine goes on") // it closes the channel last
			}
		}
		a.Close()
	}
}

func TestAheadGivesErrors(t *testing.T) {
	s := countingStream(41)
	s.vocab, s.name = 30, "tokens.arrow"
	a := NewAhead(newLoader(t, s, LoaderConfig{Seq: 4, GlobalBatch: 10, Ranks: 1}))
	defer a.Close()
	wantError(t, a.Next(make([]int32, 50)), "tokens.arrow: token ", "its tokenizer has 30", "make it again")
}

func TestAheadAllocatesNothing(t *testing.T) {
	a := NewAhead(newLoader(t, countingStream(10001), LoaderConfig{Seq: 4, GlobalBatch: 2, Ranks: 1}))
	defer a.Close()
	rows := make([]int32, 10)
	if n := testing.AllocsPerRun(50, func() { a.Next(rows) }); n != 0 {
		t.Errorf("a batch allocates %v times", n)
	}
}

// TestAheadReadsAgain: rows that are read again do not come from what was read ahead.
func TestAheadReadsAgain(t *testing.T) {
	cfg := LoaderConfig{Seq: 4, GlobalBatch: 2, Ranks: 1, Seed: 3}
	plain, a := newLoader(t, countingStream(101), cfg), NewAhead(newLoader(t, countingStream(101), cfg))
	defer a.Close()
	got := make([]int32, 10)
	for _, pos := range []int64{4, 4, 0} {
		a.Continue(pos, true)
		if err := a.Next(got); err != nil || a.State().Pos != pos+2 {
			t.Fatal(err, a.State())
		}
		if plain.pos = pos; !slices.Equal(got, next(plain)) {
			t.Errorf("rows %v of sample %d", got, pos)
		}
		b := <-a.ready // the next batch has been read
		a.rows[3] ^= 1 << 3
		a.ready <- b
	}
}
