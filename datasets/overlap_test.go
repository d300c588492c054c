package datasets

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

// verse returns n lines of text that depend on a seed.
func verse(seed string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s has line %d, and %x is in it\n", seed, i, xxh3.HashString(fmt.Sprint(seed, i)))
	}
	return b.String()
}

// cleaned returns what is left of one validation document next to training documents.
func cleaned(heldOut string, train ...string) []string {
	docs := []Document{{Name: "held", Text: []byte(heldOut)}, {Name: "other", Text: []byte(verse("other", 400))}}
	x := newOverlapIndex(docs)
	for _, text := range train {
		x.add([]byte(text))
	}
	left := []string{}
	for _, d := range x.clean(docs) {
		if d.Name == "held" {
			left = append(left, string(d.Text))
		}
	}
	return left
}

func TestCleanCutsCopiedLines(t *testing.T) {
	a, b, c := verse("a", 9), verse("b", 7), verse("c", 6)
	const prose = "the quick brown fox jumps over the lazy dog while seven wizards mix potions in a deep well"
	for name, tc := range map[string]struct {
		heldOut string
		train   []string
		want    []string
	}{
		"nothing shared":              {a, []string{b}, []string{a}},
		"an exact copy":               {a, []string{b + a + c}, []string{}},
		"a copy of a short document":  {"x\ny\n", []string{"x\ny\n"}, []string{}},
		"a short document inside":     {"x\ny\n", []string{"x\ny\nz\n"}, []string{"x\ny\n"}},
		"a run in the middle":         {a + b + c, []string{b}, []string{a, c}},
		"a run at the end":            {a + b, []string{c + b}, []string{a}},
		"a run, otherwise indented":   {a + b + c, []string{strings.ReplaceAll("\n"+b, "\n", "  \r\n\t")}, []string{a, c}},
		"four lines":                  {a + verse("d", 4), []string{b + verse("d", 4)}, []string{a + verse("d", 4)}},
		"a part of fewer than five":   {verse("e", 3) + b + c, []string{b}, []string{c}},
		"a near copy, in other lines": {prose, []string{"well: " + strings.ReplaceAll(prose, " over", "\nover") + "!"}, []string{}},
		"the half of its words":       {prose, []string{prose[:len(prose)/2]}, []string{prose}},
		"without spaces":              {"天地玄黄宇宙洪荒日月盈昃", []string{"曰天地玄黄宇宙洪荒日月盈昃也"}, []string{}},
	} {
		if got := cleaned(tc.heldOut, tc.train...); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q is left, want %q", name, got, tc.want)
		}
	}
}

// No run of five lines of the text that is used is in training text, and what is used has the order
// of the documents.
func TestCleanLeavesNoRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string, most int) string {
			alphabet := []string{"a\n", "b\n", " a\n", "}\n", "\n"}
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, most).Draw(t, name), "")
		}
		heldOut, train := text("validation", 60), text("training", 60)
		runs := map[string]bool{}
		each := func(text string, f func(run string)) {
			all := strings.SplitAfter(text, "\n")
			for i := 0; i+runLines < len(all); i++ {
				f(strings.Join(all[i:i+runLines], ""))
			}
		}
		each(train, func(run string) { runs[run] = true })
		rest := heldOut
		for _, part := range cleaned(heldOut, train) {
			each(part, func(run string) {
				if runs[run] {
					t.Fatalf("%q is left of %q next to %q", part, heldOut, train)
				}
			})
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				t.Fatalf("%q is not part of %q", part, rest)
			}
			rest = after
		}
	})
}

// Text that repeats itself keeps its validation part.
func TestCleanKeepsRepetitions(t *testing.T) {
	c, err := newCorpus([]Document{{Name: "a", Text: []byte(strings.Repeat("over\nand\nover\n", 500))}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c.HeldOut.Bytes() == 0 {
		t.Error("there is no validation text")
	}
}

// A corpus has the same validation text whether it is read as a whole or document by document, and
// in a mixture it has no text that another path trains on.
func TestCleanCorpora(t *testing.T) {
	tree := map[string]string{}
	for i := range 300 {
		tree[fmt.Sprintf("a/%03d.txt", i)] = "// Copyright\n// by\n// several\n// authors\n\n" + verse(fmt.Sprint(i%290), 10)
		tree[fmt.Sprintf("b/%03d.txt", i)] = verse(fmt.Sprint(2*i), 10)
	}
	root := writeTree(t, tree)
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	whole := load(t, Bytes{}, a)
	if text := string(Bytes{}.Decode(ids(t, whole.HeldOut))); strings.Contains(text, "Copyright") || !strings.Contains(text, " has line ") {
		t.Errorf("the validation text is %q", text)
	}
	out, _ := tokenized(t, Bytes{}, a)
	if load(t, Bytes{}, out).HeldOut.Fingerprint() != whole.HeldOut.Fingerprint() {
		t.Error("the token file has other validation text")
	}
	alone, mixed := load(t, Bytes{}, b), load(t, Bytes{}, a+"@1", b+"@1")
	if mixed.HeldOutBytes >= whole.HeldOutBytes+alone.HeldOutBytes || mixed.TrainBytes != whole.TrainBytes+alone.TrainBytes {
		t.Errorf("each path has text of the other, but all %d bytes of validation text are left", mixed.HeldOutBytes)
	}
}
