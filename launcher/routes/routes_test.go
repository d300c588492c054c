package routes

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// small is a run of two layers with experts.
func small() Header {
	return Header{Flavor: "tiny", Precision: "bf16", Layers: []int{1, 3}, Experts: 8, TopK: 2, Dim: 16, Seq: 4, Batch: 6, Ranks: 2, EP: 2, Text: "abc", Seed: 7}
}

// random returns a step whose tokens choose at random.
func random(h Header, step int) Step {
	rng := rand.New(rand.NewPCG(uint64(step), 1))
	s := Step{Step: step}
	for range len(h.Layers) * h.Tokens() {
		for _, e := range rng.Perm(h.Experts)[:h.TopK] {
			s.Experts, s.Weights = append(s.Experts, int32(e)), append(s.Weights, rng.Float32())
		}
	}
	return s
}

// written writes steps from..to to a new file and returns its path.
func written(t testing.TB, h Header, from, to int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "routes.arrow")
	w, err := Continue(path, h, from-1)
	if err != nil {
		t.Fatal(err)
	}
	for step := from; step <= to; step++ {
		if err := w.Append(random(h, step)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s Step) equals(o Step) bool {
	return s.Step == o.Step && slices.Equal(s.Experts, o.Experts) && slices.Equal(s.Weights, o.Weights)
}

func TestRoundTrip(t *testing.T) {
	h := small()
	r, err := Open(written(t, h, 3, 6))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := r.Header; got.Fits(h) != nil || got.EP != 2 || got.Precision != "bf16" || got.Format != format {
		t.Errorf("the header is %+v", got)
	}
	for _, step := range []int{4, 4, 6, 3} { // forwards, again and backwards
		if s, err := r.At(step); err != nil || !s.equals(random(h, step)) {
			t.Errorf("step %d is %+v, %v", step, s, err)
		}
	}
	for step, want := range map[int]string{2: "begin at step 3: they do not have step 2", 7: "end after step 6: they do not have step 7"} {
		if _, err := r.At(step); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("step %d: %v, want %q", step, err, want)
		}
	}
}

// TestFileOfOthers reads a file that Apache Arrow's Go implementation has written, as spmoe used it
// for routes before it had a writer of its own.
func TestFileOfOthers(t *testing.T) {
	h := small()
	r, err := Open("testdata/apache.arrow")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for step := 1; step <= 3; step++ {
		if s, err := r.Next(); err != nil || !s.equals(random(h, step)) {
			t.Errorf("step %d is %+v, %v", step, s, err)
		}
	}
	if _, err := r.Next(); err != io.EOF || r.Header.Fits(h) != nil {
		t.Errorf("the end is %v, the header %+v", err, r.Header)
	}
}

func TestContinue(t *testing.T) {
	h := small()
	path := written(t, h, 1, 5)
	w, err := Continue(path, h, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(random(h, 3)); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path) // the writer may be killed at any time
	if err != nil {
		t.Fatal(err)
	}
	for step := 1; step <= 3; step++ {
		if s, err := r.Next(); err != nil || !s.equals(random(h, step)) {
			t.Errorf("step %d is %+v, %v", step, s, err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("the end is %v", err)
	}
	if _, err := Continue(path, h, 5); err == nil || !strings.Contains(err.Error(), "ends after step 3, but step 6 comes next") {
		t.Errorf("a gap: %v", err)
	}
	other := h
	other.Seed++
	if _, err := Continue(path, other, 2); err == nil || !strings.Contains(err.Error(), "of a run with seed 7, but this one has 8: move it away") {
		t.Errorf("another run: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// What a damaged file yields is an error, or a step that a run can replay.
func TestDamage(t *testing.T) {
	h := small()
	good, err := os.ReadFile(written(t, h, 1, 3))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "damaged.arrow")
	rng, refused := rand.New(rand.NewPCG(2, 3)), 0
	for i := range 600 {
		bad := bytes.Clone(good)
		switch i % 3 {
		case 0:
			bad = bad[:rng.IntN(len(bad))]
		case 1:
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		case 2:
			at := rng.IntN(len(bad) - 8)
			copy(bad[at:], "\xff\xff\xff\xff\xff\xff\xff\x7f")
		}
		if err := os.WriteFile(path, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := readAll(path); err != nil {
			refused++
		}
	}
	if refused < 300 {
		t.Errorf("%d of 600 damaged files are refused", refused)
	}
}

func readAll(path string) error {
	r, err := Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		s, err := r.Next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if len(s.Experts) != r.Header.choices() || s.check(r.Header) != nil {
			return fmt.Errorf("step %d cannot be replayed", s.Step)
		}
	}
}

func TestCheck(t *testing.T) {
	h := small()
	for want, change := range map[string]func(s *Step){
		"has expert 8, of 8": func(s *Step) { s.Experts[5] = 8 },
		"after [":            func(s *Step) { s.Experts[7] = s.Experts[6] },
		"has weight NaN":     func(s *Step) { s.Weights[3] -= s.Weights[3]; s.Weights[3] /= s.Weights[3] },
	} {
		s := random(h, 1)
		change(&s)
		if err := s.check(h); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A file that lacks a step is refused.
func TestGap(t *testing.T) {
	h := small()
	path := filepath.Join(t.TempDir(), "routes.arrow")
	w, err := Continue(path, h, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []int{1, 3} {
		if err := w.Append(random(h, step)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := readAll(path); err == nil || !strings.Contains(err.Error(), "step 3 follows step 1") {
		t.Errorf("the gap: %v", err)
	}
}
