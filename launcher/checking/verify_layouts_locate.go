package checking

// verify-layouts: the step, the layer and the axis of a difference.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"spmoe/collective/mesh"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer/save"
)

// Locate implements [layoutTrainer]. The runs save after every step.
func (v *layoutRuns) Locate(reference, t Trial) (d FirstDifference, err error) {
	if v.steps == "" {
		v.steps = filepath.Join(v.dir, "reference")
		if err := v.startSaving(reference, v.steps); err != nil {
			return d, err
		}
	}
	out := filepath.Join(v.dir, "steps")
	defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	if err := v.startSaving(t, out); err != nil {
		return d, err
	}
	for step := 1; step <= v.cfg.Steps; step++ {
		diff, err := differenceOf(stepFolder(v.steps, step), stepFolder(out, step))
		if err != nil || diff != nil {
			d.Step = step
			if diff != nil {
				d.StateDifference = *diff
			}
			return d, err
		}
	}
	return d, fmt.Errorf("%v has ended in two states: the runs of a layout differ, so their ranks race or the machine's memory is not reliable", t)
}

// startSaving runs a train command that saves after every step.
func (v *layoutRuns) startSaving(t Trial, out string) error {
	cfg := v.cfg
	cfg.SaveEvery, cfg.SaveAsync, cfg.Keep = 1, false, cfg.Steps+1
	return v.start(cfg, t, out)
}

// differenceOf returns where two checkpoints differ; nil: nowhere.
func differenceOf(reference, other string) (*save.StateDifference, error) {
	var readers [2]*checkpoint.Reader
	var sums [2]save.StateSums
	for i, path := range []string{reference, other} {
		r, err := checkpoint.Open(path)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if sums[i], err = save.ReadStateSums(r); err != nil {
			return nil, err
		}
		readers[i] = r
	}
	names := sums[0].Differing(sums[1])
	if len(names) == 0 {
		return nil, nil
	}
	d, err := save.CompareStates(readers[0], readers[1], names)
	return &d, err
}

// StateOf returns the checksums of the state in a checkpoint.
func StateOf(path string) (sums save.StateSums, err error) {
	r, err := checkpoint.Open(path)
	if err != nil {
		return sums, err
	}
	sums, err = save.ReadStateSums(r)
	return sums, errors.Join(err, r.Close())
}

// meshAxes lists, simplest first, the axes along which a mistake may be.
var meshAxes = []struct {
	name string
	has  func(mesh.Layout) bool
}{
	{"dp_replicate > 1", func(l mesh.Layout) bool { return l.DPReplicate > 1 }},
	{"efsdp > 1", func(l mesh.Layout) bool { return l.EFSDP() > 1 }},
	{"ep > 1", func(l mesh.Layout) bool { return l.EP > 1 }},
	{"dp_shard > 1", func(l mesh.Layout) bool { return l.DPShard > 1 }},
	{"cp > 1", func(l mesh.Layout) bool { return l.CP > 1 }},
	{"tp > 1", func(l mesh.Layout) bool { return l.TP > 1 }},
	{"cp · tp > 1", func(l mesh.Layout) bool { return l.Sharers() > 1 }},
	{"dp_replicate · efsdp > 1", func(l mesh.Layout) bool { return l.Replicas() > 1 }},
	{"ep > 1 and dp_replicate · efsdp > 1", func(l mesh.Layout) bool { return l.EP > 1 && l.Replicas() > 1 }},
	{"ep > 1 and efsdp > 1", func(l mesh.Layout) bool { return l.EP > 1 && l.EFSDP() > 1 }},
	{"dp_replicate · dp_shard > 1", func(l mesh.Layout) bool { return l.Batch() > 1 }},
	{"pp > 1", func(l mesh.Layout) bool { return l.PP > 1 }},
	{"several ranks", func(l mesh.Layout) bool { return l.World > 1 }},
}

// NameAxis lists the layouts that differ. It names the axes that all of these have and few others
// do: agree is the number of those others.
func NameAxis(all []Verified) (axis string, agree int, different []string) {
	for _, v := range all {
		if !v.Same {
			different = append(different, v.Layout)
		}
	}
	agree = len(all)
	for _, a := range meshAxes {
		others := 0 // the layouts with these axes that do not differ; len(all): some without differ
		for _, v := range all {
			switch has := a.has(v.Mesh); {
			case has && v.Same:
				others++
			case !has && !v.Same:
				others = len(all)
			}
		}
		if others < agree {
			axis, agree = a.name, others
		}
	}
	return axis, agree, different
}
