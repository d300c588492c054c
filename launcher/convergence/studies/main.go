// Studies sums up the comparisons of bench/results/convergence: the difference of each arm with
// Holm's correction, arms that several studies repeat, and differences as a function of tokens.
//
//	go run ./launcher/convergence/studies                    prints the tables and draws the figures
//	go run ./launcher/convergence/studies RUNS losses.csv.gz writes the losses of a comparison's runs
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spmoe/launcher/convergence"
	"spmoe/launcher/convergence/design"
)

const results = "bench/results/convergence"

// studies are the comparisons with several seeds of one kind of model at full length, in order.
var studies = []string{"300K", "300K-nvfp4", "300K-100-seeds", "wide-fp8", "wide-fp8/mxfp8", "wide-mxfp4", "wide-mxfp4/rest"}

// between are comparisons of two arms that plans name, the first one as the baseline.
var between = []struct{ study, base, other string }{
	{"wide-fp8", "fp8-tensor+h100", "fp8-tensor+h100-nopromotion"},
	{"wide-mxfp4", "mxfp4-e2m1+forward-only", "mxfp4-e2m1+wgrad-only"},
	{"wide-mxfp4", "mxfp4-e2m1+dgrad-only", "mxfp4-e2m1+wgrad-only"},
	{"wide-mxfp4", "mxfp4-e2m1+wgrad-only", "mxfp4-e2m1+wgrad-only+hadamard"},
	{"wide-mxfp4", "mxfp4-e2m1+wgrad-only", "mxfp4-e2m1+wgrad-only+rht"},
	{"wide-mxfp4", "mxfp4-e2m1+wgrad-only", "mxfp4-e2m1+wgrad-only+stochastic"},
}

// repeated are the studies whose arms are pooled: one model, one rate, new seeds.
var repeated = []string{"300K", "300K-nvfp4"}

// arm is an arm of a study: the differences of its final losses from those of the baseline, seed by
// seed.
type arm struct {
	study, name    string
	train, heldOut design.Sample
	p, holm        float64
}

func main() {
	log.SetFlags(0)
	var err error
	switch len(os.Args) {
	case 1:
		err = sumUp(os.Stdout)
	case 3:
		err = writeLosses(os.Args[1], os.Args[2])
	default:
		err = fmt.Errorf("%d arguments: give none, or the folder of runs and the file for their losses", len(os.Args)-1)
	}
	if err != nil {
		log.Fatal("studies: ", err)
	}
}

// sumUp prints the tables and draws the figures.
func sumUp(w io.Writer) error {
	var all []arm
	read := map[string]convergence.Result{}
	for _, study := range studies {
		r, err := convergence.ReadResult(filepath.Join(results, study))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has not been run
		} else if err != nil {
			return err
		}
		read[study] = r
		for _, other := range r.Arms[1:] {
			all = append(all, compare(study, r.Arms[0], other))
		}
		for _, b := range between {
			i, j := armNamed(r, b.base), armNamed(r, b.other)
			if b.study == study && i >= 0 && j >= 0 {
				all = append(all, compare(study, r.Arms[i], r.Arms[j]))
			}
		}
	}
	for _, family := range families(all) {
		holm(family)
	}
	fmt.Fprintln(w, "| study | arm | seeds | training, 95 % | validation, 95 % | p | p by Holm |\n|---|---|---|---|---|---|---|")
	for _, a := range all {
		fmt.Fprintf(w, "| %s | %s | %d | %s | %s | %s | %s |\n", a.study, a.name, a.train.Pairs, interval(a.train), interval(a.heldOut), probability(a.p), probability(a.holm))
	}
	pooled := pool(read)
	fmt.Fprintln(w, "\n| both studies of 300K at 8e-3 | seeds | training, 95 % | validation, 95 % |\n|---|---|---|---|")
	for _, a := range pooled {
		fmt.Fprintf(w, "| %s | %d | %s | %s |\n", a.name, a.train.Pairs, interval(a.train), interval(a.heldOut))
	}
	if err := drawGaps(filepath.Join(results, "gaps.svg"), append(all, pooled...)); err != nil {
		return err
	}
	return writeCourses(w, read)
}

// pairs returns by how much an arm's losses are above the baseline's, seed by seed.
func pairs(base, other convergence.Arm, of func(convergence.Run) float64) (all []float64) {
	for _, run := range other.Runs {
		if i := slices.IndexFunc(base.Runs, func(b convergence.Run) bool { return b.Seed == run.Seed }); i >= 0 {
			all = append(all, of(run)/of(base.Runs[i])-1)
		}
	}
	return all
}

func training(r convergence.Run) float64   { return float64(r.Train) }
func validation(r convergence.Run) float64 { return float64(r.HeldOut) }

// against joins the names of two arms.
const against = " against "

// compare returns the differences of an arm from another one. Two losses may show a difference, so
// the smaller p counts twice.
func compare(study string, base, other convergence.Arm) arm {
	a := arm{study: study, name: other.Name, train: sample(pairs(base, other, training)), heldOut: sample(pairs(base, other, validation))}
	if base.Verdict != convergence.Baseline {
		a.name += against + base.Name
	}
	a.p = min(1, 2*min(twoSided(a.train), twoSided(a.heldOut)))
	return a
}

func armNamed(r convergence.Result, name string) int {
	return slices.IndexFunc(r.Arms, func(a convergence.Arm) bool { return a.Name == name })
}

// families divides comparisons into those that Holm corrects together: all with the baseline of a
// study, and all between two arms. The plans of one folder are one study.
func families(all []arm) map[string][]*arm {
	of := map[string][]*arm{}
	for i := range all {
		name, _, _ := strings.Cut(all[i].study, "/")
		if strings.Contains(all[i].name, against) {
			name += against
		}
		of[name] = append(of[name], &all[i])
	}
	return of
}

func sample(xs []float64) design.Sample {
	s := design.Sample{Pairs: len(xs)}
	for _, x := range xs {
		s.Mean += x / float64(len(xs))
	}
	for _, x := range xs {
		s.SD += (x - s.Mean) * (x - s.Mean) / float64(len(xs)-1)
	}
	s.SD = math.Sqrt(s.SD)
	return s
}

// twoSided returns p of Student's t-test against zero.
func twoSided(s design.Sample) float64 {
	t := math.Abs(s.Mean) / (s.SD / math.Sqrt(float64(s.Pairs)))
	return 2 * (1 - design.StudentsT(s.Pairs-1).CDF(t))
}

// holm sets the corrected p of a family of comparisons (Holm, 1979). It sorts them.
func holm(order []*arm) {
	slices.SortFunc(order, func(a, b *arm) int { return cmp.Compare(a.p, b.p) })
	least := 0.0
	for i, a := range order {
		least = max(least, min(1, float64(len(order)-i)*a.p))
		a.holm = least
	}
}

// pool joins the pairs of arms that the repeated studies have in common.
func pool(read map[string]convergence.Result) (all []arm) {
	first, second := read[repeated[0]], read[repeated[1]]
	for _, one := range first.Arms[1:] {
		for _, two := range second.Arms[1:] {
			if one.Name != two.Name {
				continue
			}
			both := func(of func(convergence.Run) float64) design.Sample {
				return sample(append(pairs(first.Arms[0], one, of), pairs(second.Arms[0], two, of)...))
			}
			all = append(all, arm{study: "both", name: one.Name, train: both(training), heldOut: both(validation)})
		}
	}
	return all
}

// interval shows a mean and its 95 % interval in percent. It makes no allowance for looks.
func interval(s design.Sample) string {
	ci := s.Interval(0.025)
	return fmt.Sprintf("%+.2f %% (%+.2f to %+.2f)", 100*s.Mean, 100*ci[0], 100*ci[1])
}

func probability(p float64) string { return fmt.Sprintf("%.2g", p) }
