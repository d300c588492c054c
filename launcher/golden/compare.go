package golden

import (
	"fmt"
	"math"
	"slices"
)

// Line is the verdict on one tensor or number.
type Line struct {
	Name  string
	Error float64
	Bound float64
	Rule  string // what Error measures
	Note  string // why nothing was compared, or where the worst error is
	// Unknown says that the model has nothing of that name.
	Unknown bool
}

// Compared reports whether there was something to compare.
func (l Line) Compared() bool { return l.Rule != "" }

// OK reports whether the error is within the bound. A NaN is not, nor what the model lacks.
func (l Line) OK() bool { return !l.Unknown && l.Error <= l.Bound }

// CheckPath compares a golden folder on n ranks, with its training run if it has one. A file is one
// for CheckMX.
func CheckPath(path string, n int) ([]Line, error) {
	if IsMX(path) {
		return CheckMX(path)
	}
	folder, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	lines, err := folder.Check(n)
	if err == nil && folder.HasTrajectory() {
		var deviations []Deviation
		deviations, err = folder.Replay(n)
		lines = append(lines, Lines(deviations)...)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, note := range folder.weights.Notes() {
		lines = append(lines, Line{Name: "config.json", Note: note})
	}
	return lines, nil
}

// The bounds of a float32 build against a float32 reference.
const (
	absBound      = 2e-5 // of an activation, plus relBound of the reference's magnitude
	relBound      = 1e-4
	lossBound     = 1e-5
	gradientBound = 1e-3
)

// elementRule measures |x - ref| / (1 + 5·|ref|). So absBound bounds it if absBound +
// relBound·|ref| bounds the difference.
const elementRule = "max |x - ref| / (1 + 5 |ref|)"

func elements(name string, got, want []float32) Line {
	l := Line{Name: name, Bound: absBound, Rule: elementRule}
	for i, w := range want {
		e := math.Abs(float64(got[i])-float64(w)) / (1 + relBound/absBound*math.Abs(float64(w)))
		if e > l.Error || e != e {
			l.Error = e
			l.Note = fmt.Sprintf("at element %d: %g, reference %g", i, got[i], w)
		}
		if e != e {
			break
		}
	}
	return l
}

func number(name string, got, want, bound float64) Line {
	return Line{Name: name, Error: math.Abs(got - want), Bound: bound, Rule: "|x - ref|", Note: fmt.Sprintf("%.8g, reference %.8g", got, want)}
}

// relativeL2 measures ‖x - ref‖ / ‖ref‖. A reference of zeros must be met exactly.
func relativeL2(name string, got, want []float32) Line {
	var diff, norm float64
	for i, w := range want {
		d := float64(got[i]) - float64(w)
		diff += d * d
		norm += float64(w) * float64(w)
	}
	l := Line{Name: name, Bound: gradientBound, Rule: "‖x - ref‖ / ‖ref‖"}
	switch {
	case norm > 0:
		l.Error = math.Sqrt(diff / norm)
		l.Note = fmt.Sprintf("‖ref‖ is %.3g", math.Sqrt(norm))
	case diff != 0:
		l.Error = math.Inf(1)
		l.Note = "the reference is zero"
	}
	return l
}

// countChoices counts the tokens with a different set of experts. Both lists are [tokens, k].
func countChoices(name string, got, want []int32, k int) Line {
	l := Line{Name: name, Rule: "tokens with other experts"}
	for lo := 0; lo < len(want); lo += k {
		g, w := slices.Clone(got[lo:lo+k]), slices.Clone(want[lo:lo+k])
		slices.Sort(g)
		slices.Sort(w)
		if !slices.Equal(g, w) {
			if l.Error == 0 {
				l.Note = fmt.Sprintf("first at token %d: %v, reference %v", lo/k, g, w)
			}
			l.Error++
		}
	}
	return l
}

// reorder returns the weights [tokens, k] of the experts in from, in the order of the experts in
// to. The order of a token's experts is not defined. A choice that only one side has made gets
// weight 0.
func reorder(weights []float32, from, to []int32, k int) []float32 {
	out := make([]float32, len(weights))
	for lo := 0; lo < len(to); lo += k {
		for i, e := range to[lo : lo+k] {
			if j := slices.Index(from[lo:lo+k], e); j >= 0 {
				out[lo+i] = weights[lo+j]
			}
		}
	}
	return out
}
