package checking

// verify-layouts: the comparison of layouts, and its output.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"spmoe/collective/mesh"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/trainer/save"
)

// Verified is the result of a layout.
type Verified struct {
	Layout   string           `json:"layout"`
	Ranks    int              `json:"np"`
	Mesh     mesh.Layout      `json:"mesh"`
	Schedule string           `json:"pp_schedule,omitempty"`
	Passes   int              `json:"passes,omitempty"` // per step, if they are verified
	SHA256   string           `json:"sha256"`
	Same     bool             `json:"same"` // as the state of one rank
	First    *FirstDifference `json:"first_difference,omitempty"`
	Axis     string           `json:"axis,omitempty"` // of the mesh, that the layouts that differ have in common
}

// FirstDifference is the first step after which two states differ, and where they do.
type FirstDifference struct {
	Step int `json:"step"`
	save.StateDifference
}

// String says where the states differ, and by how much.
func (d FirstDifference) String() string {
	return fmt.Sprintf("from step %d on, in %s, most in %s: %s (by %.2g)", d.Step, report.Plural(d.Tensors, "tensor"), d.Layer, d.Tensor, d.Distance)
}

// LayoutEnd is how a run has ended.
type LayoutEnd struct {
	Sums save.StateSums
}

// layoutTrainer trains in layouts.
type layoutTrainer interface {
	// Train returns the checksums of the state that a run ends with.
	Train(t Trial) (LayoutEnd, error)
	// Locate returns where the states of two runs differ first. Both train again.
	Locate(reference, t Trial) (FirstDifference, error)
}

// CompareLayouts trains in each layout and writes the results. The first one is the reference.
func CompareLayouts(trials []Trial, runs layoutTrainer, out, lines io.Writer) error {
	all, err := verifyLayouts(trials, runs, out)
	axis, agree, different := NameAxis(all)
	if n, only := onlyPasses(all); only {
		axis, agree = fmt.Sprintf("passes other than %d", n), 0
	}
	encoder := json.NewEncoder(lines)
	for _, v := range all {
		if !v.Same {
			v.Axis = axis
		}
		err = errors.Join(err, encoder.Encode(v))
	}
	switch {
	case err != nil:
		return err
	case len(different) > 0:
		if agree > 0 {
			axis += fmt.Sprintf(", and so have %d that do not differ", agree)
		}
		return cli.Fail(fmt.Errorf("%d of %d layouts do not end in the state of %s: %s; they have %s",
			len(different), len(trials), trials[0].Name(), strings.Join(different, ", "), axis), cli.ExitFailed)
	}
	fmt.Fprintf(out, "%s, one state\n", report.Plural(len(trials), "layout"))
	return nil
}

// onlyPasses reports whether the layouts that differ are exactly those with some numbers of passes,
// and returns the number of the reference.
func onlyPasses(all []Verified) (reference int, only bool) {
	same := map[int]bool{}
	for i, v := range all {
		if i == 0 {
			reference = v.Passes
		}
		if before, known := same[v.Passes]; known && before != v.Same {
			return reference, false
		}
		same[v.Passes] = v.Same
	}
	return reference, len(same) > 1
}

// verifyLayouts returns the results of layouts, until one fails to train.
func verifyLayouts(trials []Trial, runs layoutTrainer, out io.Writer) (all []Verified, err error) {
	var reference save.StateSums
	width := len(slices.MaxFunc(trials, func(a, b Trial) int { return cmp.Compare(len(a.String()), len(b.String())) }).String())
	for i, t := range trials {
		end, err := runs.Train(t)
		if err != nil {
			return all, err
		}
		if i == 0 {
			reference = end.Sums
		}
		v := Verified{Layout: t.Name(), Ranks: t.World, Mesh: t.Layout, Passes: t.passes, SHA256: end.Sums.All, Same: end.Sums.All == reference.All}
		if t.PP > 1 {
			v.Schedule = t.schedule
		}
		note := "same"
		if !v.Same {
			d, err := runs.Locate(trials[0], t)
			if err != nil {
				return all, err
			}
			v.First, note = &d, "DIFFERS "+d.String()
		}
		all = append(all, v)
		fmt.Fprintf(out, "  -np %-3d %-*s %s %s\n", t.World, width, t, v.SHA256, note)
	}
	return all, nil
}
