package projection

import (
	"math"
	"slices"
	"testing"
)

// score is the mean absolute error, the mean error and the share inside of some rows.
func score(rows []Row, of func(Row) (err float64, inside bool)) (absolute, bias, share float64) {
	for _, r := range rows {
		e, inside := of(r)
		absolute, bias = absolute+math.Abs(e), bias+e
		if inside {
			share++
		}
	}
	n := float64(len(rows))
	return absolute / n, bias / n, share / n
}

// What was predicted before the two blind sets were opened is as far off as README says.
func TestBlindPredictions(t *testing.T) {
	for set, want := range map[int][4]float64{1: {109, 0.170, 0.124, 0.743}, 2: {110, 0.287, -0.105, 0.591}} {
		rows := slices.DeleteFunc(slices.Clone(Rows()), func(r Row) bool { return r.Set != set })
		absolute, bias, inside := score(rows, func(r Row) (float64, bool) {
			return math.Log(r.Blind.Tokens / r.Published), r.Blind.Low <= r.Published && r.Published <= r.Blind.High
		})
		for i, got := range [4]float64{float64(len(rows)), absolute, bias, inside} {
			if math.Abs(got-want[i]) > 6e-4 {
				t.Errorf("set %d: figure %d is %.4f, want %g", set, i, got, want[i])
			}
		}
	}
}

// The table of constants is the one that the scores are of, and no constant left its prior far
// behind.
func TestScoresAreOfTheTable(t *testing.T) {
	s := PublishedScores()
	if s.Constants != Fit() {
		t.Errorf("data/scores.json is of constants %.12s, data/constants.json is %.12s: run bench/projection/fit/fit.py", s.Constants, Fit())
	}
	for _, c := range Table() {
		away := math.Abs(math.Log(c.Value / c.Prior))
		if c.Linear {
			away = math.Abs(c.Value - c.Prior)
		}
		if c.Kind != Fitted && c.Value != c.Prior || away > 2.5*c.Deviation {
			t.Errorf("%s is %g, and its prior %g ± %g", c.Name, c.Value, c.Prior, c.Deviation)
		}
	}
}

// The formula gives what the script found with these constants, row by row.
func TestFittedErrors(t *testing.T) {
	fits, err := NewFits()
	if err != nil {
		t.Fatal(err)
	}
	var values []float64
	for _, c := range Table() {
		values = append(values, c.Value)
	}
	scores := PublishedScores()
	for i, ln := range fits.Predict(values) {
		r := fits.Rows[i]
		if got, want := ln-math.Log(r.Published), scores.Rows[r.ID][0]; math.Abs(got-want) > 1e-3 {
			t.Errorf("%s: the formula is off by %.4f, data/scores.json says %.4f: run bench/projection/fit/fit.py", r.ID, got, want)
		}
	}
	if len(fits.Rows) != len(scores.Rows) {
		t.Errorf("%d rows, data/scores.json has %d", len(fits.Rows), len(scores.Rows))
	}
	if kinds := fits.Kinds(); len(kinds) != len(fits.Rows) || slices.ContainsFunc(kinds, func(k string) bool { return scores.Widths[k] == 0 }) {
		t.Errorf("a kind of %q has no interval", kinds)
	}
}

// Frameworks left out are predicted as well as docs say, with intervals that hold.
func TestLeftOut(t *testing.T) {
	s := PublishedScores()
	for name, most := range map[string]float64{
		LeftOut: 0.20, "the same, blind sets": 0.20, "the same, blind sets without AMD and DeepSeek-V4": 0.18,
	} {
		if g := s.Group(name); g.Error > most || g.Inside < 0.75 || g.Inside > 0.85 || g.Width > 0.65 {
			t.Errorf("%+v: want an error of at most %g, 75 to 85 %% inside, a width of at most 0.65", g, most)
		}
	}
	framework := map[string]int{}
	for _, r := range Rows() {
		if _, scored := s.Rows[r.ID]; scored == (r.Unfitted != "") || r.Framework == "" || r.Source == "" || r.Published <= 0 {
			t.Errorf("row %s: scored %v, %+v", r.ID, scored, r)
		}
		framework[r.Framework]++
	}
	if len(framework) != 10 || len(Rows()) != 276 {
		t.Errorf("%d rows of %v", len(Rows()), framework)
	}
}

// Every published run is projected, with positive terms that add up inside its interval.
func TestPublishedRuns(t *testing.T) {
	for _, r := range Rows() {
		b, err := Project(r.Run)
		if err != nil {
			t.Errorf("%s: %v", r.ID, err)
			continue
		}
		sum := 0.0
		for _, term := range b.Terms {
			if !(term.MS > 0) || term.Formula == "" {
				t.Errorf("%s: %+v", r.ID, term)
			}
			sum += term.MS
		}
		if math.Abs(sum/b.MS-1) > 1e-9 || !(b.Low < b.Tokens && b.Tokens < b.High) || math.Abs(b.Tokens*b.MS-1000) > 1e-6 {
			t.Errorf("%s: terms add up to %g: %+v", r.ID, sum, b)
		}
	}
}
