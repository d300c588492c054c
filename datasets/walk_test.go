package datasets

import (
	"context"
	"errors"
	"testing"
)

// Walk gives the documents of a corpus, side by side as it has them.
func TestWalk(t *testing.T) {
	dir := writeTree(t, map[string]string{"a.txt": "first", "b.jsonl": `{"text":"one"}` + "\n" + `{"text":"two"}`, "c/d.txt": "a longer text, the end of which is held out, because nothing else fits", "e.bin": "x\x00"})
	c, err := Open([]string{dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got [2][]string
	side := func(i int) func([]byte) error {
		return func(text []byte) error { got[i] = append(got[i], string(text)); return nil }
	}
	if err := Walk(t.Context(), []string{dir}, Options{}, side(0), side(1)); err != nil {
		t.Fatal(err)
	}
	for i, s := range []Split{c.Train, c.HeldOut} {
		if len(got[i]) != len(s.Documents()) || len(got[i]) == 0 {
			t.Fatalf("side %d: %q, want %d documents", i, got[i], len(s.Documents()))
		}
		for j, d := range s.Documents() {
			if got[i][j] != string(d.Text) {
				t.Errorf("side %d, document %d: %q, want %q", i, j, got[i][j], d.Text)
			}
		}
	}
	stop := errors.New("enough")
	if err := Walk(t.Context(), []string{dir}, Options{}, func([]byte) error { return stop }, side(1)); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Walk(ctx, []string{dir}, Options{}, side(0), side(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	err = Walk(t.Context(), []string{dir + "/missing"}, Options{}, side(0), side(1))
	wantError(t, err, "missing")
}
