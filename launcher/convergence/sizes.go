package convergence

// How the difference of a recipe changes with the size of the model, from finished comparisons.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"spmoe/launcher/report"
	"spmoe/launcher/system"

	"spmoe/launcher/convergence/design"
)

// maxResult is far above the size of a result in bytes.
const maxResult = 64 << 20

// ReadResult returns the result of a finished comparison, without the logs of its runs.
func ReadResult(folder string) (r Result, err error) {
	path := filepath.Join(folder, "result.json")
	text, err := system.ReadFile(path, maxResult)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Trend is a line through the mean differences of a loss at several sizes, each weighted by its
// precision.
type Trend struct {
	Slope float64    // change of the difference per factor of ten in parameters
	CI95  [2]float64 // of Slope
}

// sized is the difference of a loss at a model size.
type sized struct {
	parameters int64
	*Difference
}

// trendOf fits a line to differences against the logarithm of the size. It returns false without
// two sizes.
func trendOf(all []sized) (t Trend, ok bool) {
	if !slices.ContainsFunc(all, func(d sized) bool { return d.parameters != all[0].parameters }) {
		return t, false
	}
	var weights, x, y, pairs float64
	for _, d := range all {
		w := float64(d.Seeds) / (d.SD * d.SD)
		weights, x, y, pairs = weights+w, x+w*d.size(), y+w*d.Mean, pairs+float64(d.Seeds)
	}
	x, y = x/weights, y/weights
	var sxx, sxy float64
	for _, d := range all {
		w, dx := float64(d.Seeds)/(d.SD*d.SD), d.size()-x
		sxx, sxy = sxx+w*dx*dx, sxy+w*dx*(d.Mean-y)
	}
	free := pairs - float64(len(all)) // of the scatter within sizes
	half := design.StudentsT(free).Quantile(0.975) / math.Sqrt(sxx)
	t.Slope = sxy / sxx
	t.CI95 = [2]float64{t.Slope - half, t.Slope + half}
	return t, true
}

func (s sized) size() float64 { return math.Log10(float64(s.parameters)) }

// WriteSizes writes, for every arm that at least two results share, its differences by size and the
// trends that they exclude.
func WriteSizes(w io.Writer, results []Result) error {
	names := commonArms(results)
	if len(names) == 0 {
		return errors.New("no precision has been compared with one baseline and two seeds or more at two sizes")
	}
	for _, name := range names {
		fmt.Fprintf(w, "%s against %s\n", name, results[0].Arms[0].Name)
		for _, loss := range []struct {
			name string
			of   func(Arm) *Difference
		}{{"training", trainDifference}, {"validation", heldOutDifference}} {
			writeTrend(w, loss.name, bySize(results, name, loss.of))
		}
	}
	return nil
}

// commonArms returns the names of the arms with a trend in both losses.
func commonArms(results []Result) (names []string) {
	for _, r := range results {
		for _, arm := range r.Arms {
			_, train := trendOf(bySize(results, arm.Name, trainDifference))
			_, heldOut := trendOf(bySize(results, arm.Name, heldOutDifference))
			if train && heldOut && !slices.Contains(names, arm.Name) {
				names = append(names, arm.Name)
			}
		}
	}
	return names
}

func trainDifference(a Arm) *Difference   { return a.Train }
func heldOutDifference(a Arm) *Difference { return a.HeldOut }

// bySize returns the differences of an arm to the baseline of the first result, smallest model
// first. It leaves out those that have no scatter.
func bySize(results []Result, name string, of func(Arm) *Difference) (all []sized) {
	for _, r := range results {
		for _, arm := range r.Arms {
			d := of(arm)
			if arm.Name == name && d != nil && d.Seeds > 1 && d.SD > 0 && r.Arms[0].Name == results[0].Arms[0].Name {
				all = append(all, sized{r.Setup.Parameters, d})
			}
		}
	}
	slices.SortFunc(all, func(a, b sized) int { return cmp.Compare(a.parameters, b.parameters) })
	return all
}

func writeTrend(w io.Writer, loss string, all []sized) {
	for _, d := range all {
		fmt.Fprintf(w, "  %-10s %10s parameters, %8s: %+.3f %%, 95 %% interval %+.3f to %+.3f\n", loss, report.Count(d.parameters),
			report.Plural(d.Seeds, "seed"), 100*d.Mean, 100*d.CI95[0], 100*d.CI95[1])
	}
	t, ok := trendOf(all)
	if !ok {
		return
	}
	fmt.Fprintf(w, "  %-10s trend per factor of ten in parameters: %+.3f %%; excluded: below %+.3f and above %+.3f\n", loss,
		100*t.Slope, 100*t.CI95[0], 100*t.CI95[1])
}
