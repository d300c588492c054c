package referee

import (
	"encoding/json"
	"slices"
	"strconv"
)

// Verdict is what the referee says of a module, or of the step.
type Verdict string

// The verdicts. CannotTell: something that was given could not be judged.
const (
	Right      Verdict = "right"
	Wrong      Verdict = "wrong"
	CannotTell Verdict = "cannot tell"
)

// Report is all that the referee found.
type Report struct {
	Folder   string        `json:"folder"`
	Verdict  Verdict       `json:"verdict"`
	Read     []string      `json:"read"`     // what was there
	Missing  []string      `json:"missing"`  // what was not
	Unknown  []string      `json:"unknown"`  // names in the folder that the model does not have
	Unread   []string      `json:"unread"`   // names that it has, but which were not compared
	Modules  []*ModuleLine `json:"modules"`  // in the order of the forward pass
	Findings []*Finding    `json:"findings"` // the first is the cause to look at
	Doubts   []string      `json:"doubts"`   // what cannot be told, and why
	// The largest strain of each statistic, of all that is right: 1 is the threshold.
	Strains map[string]float64 `json:"strains"`
	// Resolution is the smallest relative error that every judged module would have shown.
	Resolution float64 `json:"resolution"`
	Compared   int     `json:"compared"`
}

// ModuleLine is the verdict on one module, or on one of its calls.
type ModuleLine struct {
	Path        string       `json:"path"`
	Kind        string       `json:"kind"`
	Layer       int          `json:"layer"`
	Precision   string       `json:"precision"`
	Verdict     Verdict      `json:"verdict"`
	Comparisons []Comparison `json:"comparisons"`
	Causes      []Cause      `json:"causes,omitempty"`
}

// Cause is a known mistake that explains a wrong module: with it, the reference agrees.
type Cause struct {
	Name   string  `json:"name"`
	Says   string  `json:"says"`
	Strain float64 `json:"strain"` // of the module under this mistake
}

// Finding is something wrong, in words.
type Finding struct {
	Module string   `json:"module"`
	Part   string   `json:"part"` // forward, backward, gradient, choice, folder
	Says   []string `json:"says"`
	Causes []Cause  `json:"causes,omitempty"`
	Factor float64  `json:"factor,omitempty"`
	Names  []string `json:"names,omitempty"` // the tensors
	Tokens []int    `json:"tokens,omitempty"`
	Look   string   `json:"look,omitempty"`
}

// note counts a comparison and keeps the largest strains of right ones.
func (r *Report) note(all []Comparison) {
	for i := range all {
		c := &all[i]
		c.bound()
		r.Compared++
		if !c.Wrong() {
			r.Strains[c.What+" "+c.Statistic] = max(r.Strains[c.What+" "+c.Statistic], c.Strain)
			r.Resolution = max(r.Resolution, c.Resolution)
		}
	}
}

// wrong returns the wrong comparisons of a line, or only those of some kinds.
func (l *ModuleLine) wrong(what ...string) (all []*Comparison) {
	for i := range l.Comparisons {
		if c := &l.Comparisons[i]; c.Wrong() && (len(what) == 0 || slices.Contains(what, c.What)) {
			all = append(all, &l.Comparisons[i])
		}
	}
	return all
}

// add keeps the worst comparison of each tensor of several calls.
func (l *ModuleLine) add(found []Comparison) {
	for i, c := range found {
		if i >= len(l.Comparisons) || l.Comparisons[i].What != c.What {
			l.Comparisons = append(l.Comparisons, c)
		} else if !(c.Strain <= l.Comparisons[i].Strain) {
			l.Comparisons[i] = c
		}
	}
}

// worst returns the comparison with the largest strain of a kind; nil: none.
func (l *ModuleLine) worst(what ...string) (worst *Comparison) {
	for i := range l.Comparisons {
		c := &l.Comparisons[i]
		if slices.Contains(what, c.What) && (worst == nil || !(c.Strain <= worst.Strain)) {
			worst = c
		}
	}
	return worst
}

// JSON returns the whole report.
func (r *Report) JSON() ([]byte, error) { return json.Marshal(r) }

// bound replaces what JSON has no number for, and shortens the others.
func (c *Comparison) bound() {
	for _, x := range []*float64{&c.Error, &c.Floor, &c.Worst, &c.WorstFloor, &c.Strain, &c.Resolution, &c.Factor, &c.FactorFloor, &c.Rest} {
		if !(*x > -most && *x < most) {
			*x = most
		}
		*x, _ = strconv.ParseFloat(strconv.FormatFloat(*x, 'g', 5, 64), 64)
	}
}

// most stands for infinity and NaN.
const most = 1e9
