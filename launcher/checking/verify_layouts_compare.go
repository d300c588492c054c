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

// layoutTrainer trains in layouts.
type layoutTrainer interface {
	// Train returns the checksums of the state that a run ends with.
	Train(t Trial) (save.StateSums, error)
	// Locate returns where the states of two runs differ first. Both train again.
	Locate(reference, t Trial) (FirstDifference, error)
}

// CompareLayouts trains in each layout and writes the results. The first one is the reference.
func CompareLayouts(trials []Trial, runs layoutTrainer, out, lines io.Writer) error {
	all, err := verifyLayouts(trials, runs, out)
	axis, agree, different := NameAxis(all)
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

// verifyLayouts returns the results of layouts, until one fails to train.
func verifyLayouts(trials []Trial, runs layoutTrainer, out io.Writer) (all []Verified, err error) {
	var reference save.StateSums
	width := len(slices.MaxFunc(trials, func(a, b Trial) int { return cmp.Compare(len(a.String()), len(b.String())) }).String())
	for i, t := range trials {
		sums, err := runs.Train(t)
		if err != nil {
			return all, err
		}
		if i == 0 {
			reference = sums
		}
		v := Verified{Layout: t.Name(), Ranks: t.World, Mesh: t.Layout, SHA256: sums.All, Same: sums.All == reference.All}
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
