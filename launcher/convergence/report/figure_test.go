package report

import (
	"html"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
)

func TestNumbers(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct{ got, want string }{
		{change(0.00031), "+0.031%"}, {change(-0.0234), "−2.34%"}, {change(1.5), "+150.0%"}, {change(0), "0.000%"}, {change(-1e-9), "0.000%"}, {change(nan), "–"},
		{interval([2]float64{-0.0001, 0.0007}), "[−0.010, +0.070]"}, {interval([2]float64{-0.2, 0.0007}), "[−20.0, +0.1]"},
		{figure.Percentage(0.005, 2), "0.5%"}, {figure.Percentage(0.00123, 2), "0.12%"}, {figure.Percentage(0, 2), "0%"}, {figure.Percentage(inf, 2), "–"},
		{figure.Loss(1.23456), "1.2346"}, {figure.Loss(nan), "–"},
		{decibels(31.25), "31.2"}, {decibels(inf), "exact"}, {decibels(nan), "–"},
		{rare(0), "0"}, {rare(0.0123), "0.012%"}, {rare(1e-7), "<0.0001%"}, {rare(nan), "–"},
		{pValue(nil), "–"}, {pValue(&convergence.Difference{Seeds: 1, P: 1}), "–"}, {pValue(&convergence.Difference{Seeds: 3, P: 0.04321}), "0.0432"}, {pValue(&convergence.Difference{Seeds: 3, P: 1e-9}), "<0.0001"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}

// Every arm has a look of its own, the first colours are all different, and no colour of the page
// is two.
func TestLooks(t *testing.T) {
	arms := make([]convergence.Arm, 2*len(figure.Palette)-1)
	for i := range arms {
		arms[i].Name = strconv.Itoa(i)
	}
	seen := map[string]string{}
	for _, l := range stylesOf(arms) {
		key := l.Shade.Variable + strconv.Itoa(len(l.Line.Dashes))
		if seen[key] != "" {
			t.Errorf("%s looks like %s", l.Name, seen[key])
		}
		seen[key] = l.Name
	}
	light := map[uint32]string{}
	for _, s := range figure.Shades() {
		if light[s.Light] != "" {
			t.Errorf("%s and %s are both %s", s.Variable, light[s.Light], figure.Hex(s.Light))
		}
		light[s.Light] = s.Variable
	}
}

// canvas records what is drawn on it.
type canvas struct{ recorder.Canvas }

func (canvas) Size() (w, h vg.Length) { return 400, 300 }

// In the forest plot, a mean at the margin lies on the line of the margin, and what lies beyond the
// panel is an arrow.
func TestForestPlaces(t *testing.T) {
	r := sample(sampleRecipes, 3, 40)
	for _, d := range []**convergence.Difference{&r.Arms[1].Train, &r.Arms[1].HeldOut} {
		*d = &convergence.Difference{Pairs: []float64{r.Margin}, Mean: r.Margin, CI95: [2]float64{r.Margin, r.Margin}, Seeds: 3}
	}
	p := painter{r, stylesOf(r.Arms)}
	rows := p.forestRows(func(a convergence.Arm) *convergence.Difference { return a.Train }, func(r convergence.Run) record.Number { return r.Train })
	panel := p.forestPanel("", rows[1:2], 2*100*r.Margin)
	c := new(canvas)
	panel.Draw(draw.New(c))

	var lines, dots []vg.Length // the dashed ones of the margin; circles
	dashed := false
	for _, action := range c.Actions {
		switch a := action.(type) {
		case *recorder.SetLineDash:
			dashed = len(a.Dashes) > 0
		case *recorder.Stroke:
			if dashed {
				lines = append(lines, a.Path[0].Pos.X)
			}
		case *recorder.Fill:
			for _, part := range a.Path {
				if part.Type == vg.ArcComp {
					dots = append(dots, part.Pos.X)
				}
			}
		}
	}
	if len(lines) != 2 || len(dots) != 1 || math.Abs(float64(dots[0]-lines[1])) > 0.01 {
		t.Errorf("the margin is at %v, the mean at %v", lines, dots)
	}

	rows[1].mean = 1e6
	c = new(canvas)
	p.forestPanel("", rows[1:2], p.axisRange(rows[1:2])).Draw(draw.New(c))
	if slices.ContainsFunc(c.Actions, func(a recorder.Action) bool {
		fill, ok := a.(*recorder.Fill)
		return ok && slices.ContainsFunc(fill.Path, func(part vg.PathComp) bool { return part.Type == vg.ArcComp })
	}) {
		t.Error("a dot is drawn for a mean beyond the panel")
	}
}

var textWidth = regexp.MustCompile(`textLength="([\d.]+)"[^>]*font-size:([\d.]+)px[^>]*>([^<]*)<`)

// Texts in an SVG say how wide they are, and what to use for a font that is missing.
func TestSVGText(t *testing.T) {
	r := sample(sampleRecipes, 2, 40)
	r.Arms[1].Name = "a < b & c"
	for _, f := range (painter{r, stylesOf(r.Arms)}).figures() {
		svg, err := f.SVG()
		if err != nil {
			t.Fatal(err)
		}
		found := textWidth.FindAllSubmatch(svg, -1)
		if len(found) < 5 {
			t.Fatalf("%s has %d texts with a width", f.Name, len(found))
		}
		for _, m := range found {
			width, _ := strconv.ParseFloat(string(m[1]), 64)
			size, _ := strconv.ParseFloat(string(m[2]), 64)
			letters := float64(len([]rune(html.UnescapeString(string(m[3])))))
			if width < 0.2*size*letters || width > 1.0*size*letters {
				t.Errorf("%s: %q of size %v is %v wide", f.Name, m[3], size, width)
			}
		}
		if strings.Contains(string(svg), "font-family:Liberation Sans;") || strings.Contains(string(svg), "@font-face") {
			t.Errorf("%s has fonts without a fallback, or inside", f.Name)
		}
	}
}

// The sentence tells a difference that is shown from one that is too uncertain, and one that is
// small but real from none.
func TestStatements(t *testing.T) {
	for _, test := range []struct {
		verdict string
		ci95    [2]float64
		want    string
	}{
		{convergence.Different, [2]float64{0.008, 0.012}, "mxfp8 does not converge to the loss of bf16"},
		{convergence.Different, [2]float64{0.008, 0.012}, "It is measurably higher in training loss."},
		{convergence.Different, [2]float64{-0.012, -0.008}, "It is measurably lower in training loss."},
		{convergence.Undecided, [2]float64{-0.002, 0.012}, "Neither equivalence within ±0.5% nor a difference is shown"},
		{convergence.Equivalent, [2]float64{0.001, 0.002}, "It is measurably higher in training loss."},
		{convergence.Equivalent, [2]float64{-0.001, 0.002}, "converges to the loss of bf16"},
	} {
		r := sample(sampleRecipes[:2], 3, 40)
		r.Arms[1].Verdict = test.verdict
		r.Arms[1].Train.CI95, r.Arms[1].HeldOut.CI95 = test.ci95, [2]float64{-1, 1}
		list := view{painter: painter{r, stylesOf(r.Arms)}}.Statements()
		if len(list) != 1 || !strings.Contains(list[0], test.want) {
			t.Errorf("%+v: %q, want %q", test, list, test.want)
		}
		if measurable := strings.Contains(list[0], "measurably"); measurable != (test.ci95[0]*test.ci95[1] > 0) {
			t.Errorf("%+v: %q", test, list)
		}
	}
}

// The right end of the curve of differences is what the test judges.
func TestDifferenceEndsAtTheResult(t *testing.T) {
	r := sample(sampleRecipes, 3, 200)
	p := painter{r, stylesOf(r.Arms)}
	list := p.differenceCurves(func(log *record.Log) figure.Series { return figure.Steps(log, "loss").Trailing(r.Setup.Tail) })
	if len(list) != 2 {
		t.Fatalf("%d curves", len(list))
	}
	for _, d := range list {
		want := r.Arms[d.arm].Train
		if got := d.Mean[len(d.Mean)-1]; math.Abs(got-100*want.Mean) > 1e-9 {
			t.Errorf("%s ends at %v%%, want %v%%", r.Arms[d.arm].Name, got, 100*want.Mean)
		}
		if low := d.Low[len(d.Low)-1]; math.Abs(low-100*slices.Min(want.Pairs)) > 1e-9 {
			t.Errorf("%s: the lowest seed ends at %v%%, want %v%%", r.Arms[d.arm].Name, low, 100*slices.Min(want.Pairs))
		}
	}
}
