package datasets

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSplitHoldsOutTwoPercent(t *testing.T) {
	for _, tc := range []struct{ docs, size int }{{2000, 100}, {100, 1000}, {50, 64}, {7, 5000}, {2, 100}, {1, 1000}} {
		c, err := newCorpus(numbered(tc.docs, tc.size), 0)
		if err != nil {
			t.Fatal(err)
		}
		total := int64(tc.docs * tc.size)
		if got := c.Train.Bytes() + c.HeldOut.Bytes(); got != total {
			t.Errorf("%v: both sides hold %d bytes, want %d", tc, got, total)
		}
		if got := c.HeldOut.Bytes(); got*100 < total || got*50 > total {
			t.Errorf("%v: %d of %d bytes held out, want 1 to 2 %%", tc, got, total)
		}
		if len(c.Train.docs) == 0 || len(c.HeldOut.docs) == 0 {
			t.Errorf("%v: %d and %d documents, want one or more on each side",
				tc, len(c.Train.docs), len(c.HeldOut.docs))
		}
	}
}

func TestSplitOfTinyCorpora(t *testing.T) {
	one := func(text string) []Document { return []Document{{Name: "a", Text: []byte(text)}} }
	for _, text := range []string{"", "x"} {
		_, err := newCorpus(one(text), 0)
		wantError(t, err, "too few")
	}
	c, err := newCorpus(one("xy"), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "x", "a#tail": "y"}
	if got := names(c); !maps.Equal(got, want) {
		t.Errorf("split of two bytes is %q, want %q", got, want)
	}
}

func TestFingerprintSeesEveryChange(t *testing.T) {
	base := func() []Document { return numbered(200, 50) }
	fingerprints := make(map[string]string)
	add := func(what string, docs []Document) {
		c, err := newCorpus(docs, 0)
		if err != nil {
			t.Fatal(err)
		}
		for side, s := range map[string]Split{"train": c.Train, "held-out": c.HeldOut} {
			key := Tokenize(s, Bytes{}).Fingerprint()
			if other, ok := fingerprints[key]; ok {
				t.Errorf("%s of %q has the fingerprint of %s", side, what, other)
			}
			fingerprints[key] = side + " of " + what
		}
	}
	add("the corpus", base())

	// A change on one side must change the fingerprints of both.
	c, err := newCorpus(base(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for side, s := range map[string]Split{"train": c.Train, "held-out": c.HeldOut} {
		name := s.docs[0].Name
		docs := base()
		i := slices.IndexFunc(docs, func(d Document) bool { return d.Name == name })
		docs[i].Text[0] ^= 1
		add("a changed "+side+" byte", docs)
	}
	docs := base()
	docs[3].Text, docs[4].Text = append(docs[3].Text, docs[4].Text[0]), docs[4].Text[1:]
	add("a byte moved to the next document", docs)
	add("a document less", base()[1:])

	if digest("ab", "c") == digest("a", "bc") {
		t.Error("a byte moved from one field to the next leaves the digest as it was")
	}
}

// TestOneIdentity: the same rows have the same validation stream in any file, under any name,
// packed or not, in several parts and in another order; and the same training stream unless their
// order differs.
func TestOneIdentity(t *testing.T) {
	var all []string
	for i := range 675 {
		text := strings.Repeat(fmt.Sprintf("document %d; ", i%600), 1+i%7)
		all = append(all, fmt.Sprintf(`{"text":"%s","id":%d}`, text, i))
	}
	lines := []byte(strings.Join(all, "\n"))
	slices.Reverse(all)
	dir := writeTree(t, map[string]string{
		"my.jsonl": string(lines), "renamed.ndjson": string(lines), "reversed.jsonl": strings.Join(all, "\n"),
		"my.jsonl.gz": string(compressed(t, gzipped, lines)), "parts/b.jsonl": strings.Join(all[:200], "\n"), "parts/a.jsonl": strings.Join(all[200:], "\n"),
	})
	type identity struct{ validation, training string }
	var want identity
	for i, name := range []string{"my.jsonl", "renamed.ndjson", "my.jsonl.gz", "reversed.jsonl", "parts"} {
		d, err := Load([]string{filepath.Join(dir, name)}, Bytes{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := identity{string(d.HeldOut.narrow), d.Train.Fingerprint()}
		if i == 0 {
			want = got
		}
		if got.validation != want.validation || (got.training != want.training) != (i > 2) {
			t.Errorf("%s: %d bytes of validation text, want %d, with the same training text: %v", name, len(got.validation), len(want.validation), got.training == want.training)
		}
	}
	if n := len(want.validation); n < 100 {
		t.Errorf("%d bytes of validation text", n)
	}
}

// TestFirstRules: data of runs of earlier versions is refused, with the commit that reads it.
func TestFirstRules(t *testing.T) {
	dir := writeTree(t, map[string]string{"a.txt": "some text"})
	for _, paths := range [][]string{{dir}, nil} {
		_, err := Load(paths, Bytes{}, Options{Rules: FirstRules})
		if err == nil || !strings.Contains(err.Error(), "continue that run with the launcher of commit 66fb8c31") {
			t.Errorf("%v", err)
		}
	}
}
