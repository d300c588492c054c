package main

import (
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// README.md and docs quote what stands in bench/results.
func TestFigures(t *testing.T) {
	report, err := check(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range report.faults {
		t.Error(fault)
	}
}

// A figure of three digits or more seldom has the value of another number of its file, so most
// changes are noticed. A short one must stand on a line about the same thing.
func TestChangedFiguresAreNoticed(t *testing.T) {
	c := checker{root: root, results: map[string][]section{}}
	var long, short tally
	for _, q := range c.quotes(t) {
		switch {
		case q.figure.short():
			short.change(q)
		case q.figure.value >= 200*q.figure.half:
			long.change(q)
		}
	}
	for name, c := range map[string]struct {
		tally
		least float64
	}{"short": {short, 0.4}, "long": {long, 0.75}} {
		if share := float64(c.noticed) / float64(c.changed); !(share >= c.least) {
			t.Errorf("%d of %d changes of %s figures are noticed, expected %.0f %%", c.noticed, c.changed, name, 100*c.least)
		}
		t.Logf("%d of %d changes of %s figures by a unit of the last digit are noticed", c.noticed, c.changed, name)
	}
}

// tally counts changes of figures.
type tally struct{ changed, noticed int }

func (c *tally) change(q quote) {
	for _, sign := range []float64{-1, 1} {
		f := q.figure
		f.value += sign * 2 * f.half
		c.changed++
		if !f.among(q.measured) {
			c.noticed++
		}
	}
}

// quote is a figure with those that it may be.
type quote struct {
	figure   figure
	measured []figure
}

func (c *checker) quotes(t *testing.T) (all []quote) {
	t.Helper()
	if err := c.documents(func(_ string, b block) {
		if b.given || len(b.results) == 0 {
			return
		}
		measured, figures := c.measured(b), b.figures()
		near := near(measured, words(b.text), figures)
		for _, f := range figures {
			q := quote{f, near}
			if !f.short() {
				q.measured = figuresOf(measured)
			}
			all = append(all, q)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestProse(t *testing.T) {
	for _, test := range []struct{ text, figures string }{
		{"`--np 8` trains at 3,608 tokens/s, 46 % of BF16's peak", "3,608 46"},
		{"within 1.2e-6 of 1,024", "1.2e-6 1,024"},
		{"top-8, AVX-512, E4M3, 16B, Zen 5, 32x2048x7168, 1024³, 2026-11-25, PyTorch 1.13.1", ""},
		{"[2.2 times](../bench/results/peers-2.txt) <!-- figures: bench/results/a1.txt -->", "2.2"},
	} {
		var found []string
		for _, f := range prose(test.text) {
			found = append(found, f.text)
		}
		if got := strings.Join(found, " "); got != test.figures {
			t.Errorf("%s: figures %q, expected %q", test.text, got, test.figures)
		}
	}
}

func TestRounding(t *testing.T) {
	for _, test := range []struct {
		quoted, measured string
		same             bool
	}{
		{"46", "45.6", true}, {"46", "45.4", false}, {"3,608", "3608.2", true}, {"2.2", "2.21", true},
		{"2.3", "2.21", false}, {"0.5", "0.45", true}, {"2.20", "2.2", false}, {"1.1e-6", "1.05e-06", true}, {"1.1e-6", "1.2e-06", false},
	} {
		if got := parse(test.quoted).among(numbers(test.measured)); got != test.same {
			t.Errorf("%s in a file with %s: %v, expected %v", test.quoted, test.measured, got, test.same)
		}
	}
}

// A short figure stands on a line with a word or a longer figure of the text, or below a heading
// with two words of it.
func TestShortFigures(t *testing.T) {
	file := lines("products   time\nforward    12\nBF16       13\nsums      345 14\n15\n")
	file = append(file, lines("times of products\n16")...)
	for text, want := range map[string]bool{
		"forward 12": true, "backward 12": false, "BF16 takes 13": true, "sum 14": true, "14 of 345": true, "14 of 346": false,
		"15": false, "time 15": false, "the product's time 16": true, "a product 16": false,
	} {
		figures := prose(text)
		at := slices.IndexFunc(figures, figure.short)
		if got := figures[at].among(near(file, words(text), figures)); got != want {
			t.Errorf("%q: %v, expected %v", text, got, want)
		}
	}
}

func TestBlocks(t *testing.T) {
	text := "One of 3,\nand 4.\n\n<!-- figures: bench/results/a.txt -->\n| 5 |\n| 6 [b](bench/results/b.txt) |\n\n- 7\n- 8 <!-- figures: given -->\n\n" +
		"<!-- figures: bench/results/c.txt -->\n\n    9\n\n    10\n\n11\n"
	var got []string
	for _, b := range blocks(text) {
		var values []string
		for _, f := range b.figures() {
			values = append(values, f.text)
		}
		mark := strings.Join(b.results, "+")
		if b.given {
			mark = given
		}
		got = append(got, strings.Join(values, " ")+":"+mark)
	}
	want := []string{"3 4:", "5:bench/results/a.txt", "6:bench/results/a.txt+bench/results/b.txt", "7:", "8:given", "9 10:bench/results/c.txt", "11:"}
	if !slices.Equal(got, want) {
		t.Errorf("blocks %q, expected %q", got, want)
	}
}

const result = `command: run
machine: this one
date:    2026-11-25

commit:  1d1e590
measures: tensor mx, 100 lines

12.5

commit:  0123456
measures: dated

13.5
`

func TestSections(t *testing.T) {
	all, err := sections("a.txt", result)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].most != 100 || !slices.Equal(all[0].paths, []string{"tensor", "mx"}) || !all[1].dated ||
		all[1].header["command"] != "run" || !parse("13.5").among(figuresOf(all[1].lines)) || parse("13.5").among(figuresOf(all[0].lines)) {
		t.Errorf("sections %+v", all)
	}
	for _, test := range []struct{ old, changed, message string }{
		{"machine: this one\n", "", `a.txt:1: the header has no line "machine:"`},
		{"tensor mx, 100 lines", "tensor", `measures: "tensor"`},
	} {
		_, err := sections("a.txt", strings.ReplaceAll(result, test.old, test.changed))
		if err == nil || !strings.Contains(err.Error(), test.message) {
			t.Errorf("without %q: error %v, expected %s", test.old, err, test.message)
		}
	}
}

func TestCountLines(t *testing.T) {
	const numstat = "10\t2\tmx/a.go\n5\t5\tmx/a_test.go\n1\t0\tmx/{b.go => c.go}\n-\t-\tmx/d.go\n7\t7\tmx/e.s\n"
	if got := countLines(numstat); got != 13 {
		t.Errorf("%d lines, expected 13", got)
	}
}

func TestOldCode(t *testing.T) {
	if _, err := changedLines(root, "0000000000000000000000000000000000000000", []string{"tensor"}); err != errNoHistory {
		t.Errorf("a commit that is not in the clone: error %v, expected %v", err, errNoHistory)
	}
}
