package datasets

import (
	"slices"
	"testing"
)

// Walk gives the documents of a corpus, side by side as it has them.
func TestWalk(t *testing.T) {
	dir := writeTree(t, map[string]string{"a.txt": "first", "b.jsonl": `{"text":"one"}` + "\n" + `{"text":"two"}`, "c/d.txt": "a longer text, the end of which is held out, because nothing else fits", "e.bin": "x\x00"})
	c := open(t, Options{}, dir)
	var got [2][]string
	side := func(i int) func([]byte) error {
		return func(text []byte) error { got[i] = append(got[i], string(text)); return nil }
	}
	if err := Walk(t.Context(), []string{dir}, Options{}, side(0), side(1)); err != nil {
		t.Fatal(err)
	}
	for i, s := range []Split{c.Train, c.HeldOut} {
		if len(got[i]) == 0 || !slices.EqualFunc(got[i], s.docs, func(text string, d Document) bool { return text == string(d.Text) }) {
			t.Errorf("side %d: %q, want %d documents", i, got[i], len(s.docs))
		}
	}
}
