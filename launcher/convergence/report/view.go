package report

// The data of the page's template: sentences and table rows.

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"spmoe/launcher/convergence"
	console "spmoe/launcher/report"
	"spmoe/launcher/report/figure"
)

// view holds the data of the template.
type view struct {
	painter
	Sections []figure.Section
}

// Head returns the content of the page's head.
func (v view) Head() template.HTML { return figure.Head(v.Title()) }

// Title names the compared arms.
func (v view) Title() string {
	var names []string
	for i, arm := range v.Arms {
		if i > 0 && !arm.Ablation {
			names = append(names, arm.Name)
		}
	}
	switch {
	case len(v.Arms) == 0:
		return "Comparison without arms"
	case len(names) == 0:
		return v.Arms[0].Name + ", compared with no other arm"
	}
	return enumerate(names) + " against " + v.Arms[0].Name
}

// enumerate joins names as in "a, b and c".
func enumerate(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// Statements returns one sentence per compared arm with its outcome.
func (v view) Statements() (list []string) {
	for i, arm := range v.Arms {
		if i > 0 && !arm.Ablation {
			list = append(list, v.statement(arm))
		}
	}
	return list
}

func (v view) statement(arm convergence.Arm) string {
	base := v.Arms[0].Name
	begin := fmt.Sprintf("After %s with %s, ", console.Plural(v.Setup.Steps, "step"), console.Plural(len(arm.Runs), "seed"))
	switch n, nBase := diverged(arm), diverged(v.Arms[0]); {
	case n > 0:
		return begin + fmt.Sprintf("%s does not converge to the loss of %s: %d of its %s diverged.", arm.Name, base, n, console.Plural(len(arm.Runs), "run"))
	case nBase > 0:
		return begin + fmt.Sprintf("nothing can be said about %s: %d of the baseline's %s diverged.", arm.Name, nBase, console.Plural(len(v.Arms[0].Runs), "run"))
	case arm.Train == nil || arm.HeldOut == nil:
		return begin + fmt.Sprintf("%s has no finite difference to %s.", arm.Name, base)
	}
	differences := fmt.Sprintf("%s in training loss%s and %s in validation loss%s",
		change(arm.Train.Mean), intervalText(arm.Train), change(arm.HeldOut.Mean), intervalText(arm.HeldOut))
	tests := fmt.Sprintf("(TOST, p %s for training and p %s for validation)", relation(arm.Train), relation(arm.HeldOut))
	if relation(arm.Train) == relation(arm.HeldOut) {
		tests = fmt.Sprintf("(TOST, p %s for both)", relation(arm.Train))
	}
	limit := "±" + figure.Percentage(v.Margin, 2)
	switch {
	case arm.Verdict == convergence.Equivalent:
		return begin + fmt.Sprintf("%s converges to the loss of %s: it differs by %s, which is equivalent within %s %s.%s", arm.Name, base, differences, limit, tests, measurable(arm))
	case len(arm.Runs) < 2:
		return begin + fmt.Sprintf("%s differs from %s by %s. One seed says nothing about others, so equivalence within %s is undecided.", arm.Name, base, differences, limit)
	case arm.Verdict == convergence.Different:
		return begin + fmt.Sprintf("%s does not converge to the loss of %s: it differs by %s, which is not equivalent within %s %s.%s", arm.Name, base, differences, limit, tests, measurable(arm))
	}
	return begin + fmt.Sprintf("%s is undecided: it differs from %s by %s. Neither equivalence within %s nor a difference is shown %s.", arm.Name, base, differences, limit, tests)
}

// measurable says which losses are shown to differ from the baseline's at all.
func measurable(arm convergence.Arm) string {
	var list []string
	for _, loss := range []struct {
		name string
		d    *convergence.Difference
	}{{"training", arm.Train}, {"validation", arm.HeldOut}} {
		if sign := loss.d.Sign(); sign != 0 {
			list = append(list, map[int]string{1: "higher", -1: "lower"}[sign]+" in "+loss.name+" loss")
		}
	}
	if list == nil {
		return ""
	}
	return fmt.Sprintf(" It is measurably %s.", enumerate(list))
}

// intervalText returns the interval of a difference in brackets.
func intervalText(d *convergence.Difference) string {
	if !tested(d) {
		return ""
	}
	return fmt.Sprintf(" (95%% CI %s to %s)", change(d.CI95[0]), change(d.CI95[1]))
}

func relation(d *convergence.Difference) string {
	p := pValue(d)
	if strings.HasPrefix(p, "<") {
		return p[:1] + " " + p[1:]
	}
	return "= " + p
}

func diverged(arm convergence.Arm) (n int) {
	for _, run := range arm.Runs {
		if run.Diverged {
			n++
		}
	}
	return n
}

// finalLosses returns the means over seeds. They are NaN if a seed's loss is not finite.
func finalLosses(arm convergence.Arm) (train, heldOut float64) {
	for _, run := range arm.Runs {
		train += float64(run.Train)
		heldOut += float64(run.HeldOut)
	}
	n := float64(len(arm.Runs))
	return train / n, heldOut / n
}

// row is the row of an arm in the tables.
type row struct {
	Shade                string // CSS variable of its colour
	Name, About, Verdict string
	Train, HeldOut       string
	TrainBy, HeldOutBy   string // differences
	TrainCI, HeldOutCI   string
	TrainP, HeldOutP     string
	SQNR                 string
	Flushed, Saturated   string
	Router               string // choices shared with the baseline's
	Speed, Relative      string
	Skipped, Diverged    int // steps, runs
}

// Compared returns the rows of the baseline and of the arms with a verdict.
func (v view) Compared() []row { return v.rows(false) }

// Ablations returns the rows of the ablations.
func (v view) Ablations() []row { return v.rows(true) }

func (v view) rows(ablations bool) (list []row) {
	for i, arm := range v.Arms {
		if (arm.Ablation && i > 0) == ablations {
			list = append(list, v.row(i, arm))
		}
	}
	return list
}

func (v view) row(i int, arm convergence.Arm) row {
	train, heldOut := finalLosses(arm)
	r := row{
		Shade: v.styles[i].Shade.Variable, Name: arm.Name, About: arm.About, Verdict: arm.Verdict, Diverged: diverged(arm),
		Train: figure.Loss(train), HeldOut: figure.Loss(heldOut), SQNR: sqnrs(arm),
		Flushed: rare(flushed(arm.Quantized(""))), Saturated: rare(saturated(arm.Quantized(""))), Router: lastAgreement(arm),
		Speed: figure.Missing, Relative: figure.Missing,
	}
	r.TrainBy, r.TrainCI, r.TrainP = differenceTexts(arm.Train)
	r.HeldOutBy, r.HeldOutCI, r.HeldOutP = differenceTexts(arm.HeldOut)
	for _, run := range arm.Runs {
		r.Skipped += run.Skipped
	}
	if arm.Speed > 0 {
		r.Speed = console.Thousands(arm.Speed)
		if base := v.Arms[0].Speed; base > 0 {
			r.Relative = figure.Plain(arm.Speed/base, 2) + "×"
		}
	}
	return r
}

func differenceTexts(d *convergence.Difference) (by, ci, p string) {
	switch {
	case d == nil:
		return figure.Missing, "", ""
	case !tested(d):
		return change(d.Mean), "", ""
	}
	return change(d.Mean), interval(d.CI95), pValue(d)
}

// sqnrs returns the median SQNRs of an arm's inputs, weights and gradients, over all records:
// "31.0 / 30.2 / 29.8".
func sqnrs(arm convergence.Arm) string {
	var list []string
	for _, kind := range kinds {
		list = append(list, decibels(convergence.MedianSQNR(arm.Quantized(kind))))
	}
	if !slices.ContainsFunc(list, func(s string) bool { return s != figure.Missing }) {
		return figure.Missing
	}
	return strings.Join(list, " / ")
}

func lastAgreement(arm convergence.Arm) string {
	share, ok := arm.LastAgreement()
	if !ok {
		return figure.Missing
	}
	return figure.Percentage(share, 1)
}

// SpreadText states the scatter of the baseline's seeds. It is empty for fewer than two seeds.
func (v view) SpreadText() string {
	if len(v.Arms) == 0 || len(v.Arms[0].Runs) < 2 || v.Spread.Train.SD == 0 && v.Spread.HeldOut.SD == 0 {
		return ""
	}
	return fmt.Sprintf("For scale: the %d seeds of %s have a standard deviation of %s (training loss) and %s (validation loss).",
		len(v.Arms[0].Runs), v.Arms[0].Name, figure.Percentage(v.Spread.Train.SD, 3), figure.Percentage(v.Spread.HeldOut.SD, 3))
}

// MarginText returns the margin as a percentage.
func (v view) MarginText() string { return figure.Percentage(v.Margin, 2) }

// LooksText says after which numbers of seeds the arms were to be judged.
func (v view) LooksText() string {
	var list []string
	for _, look := range v.Looks {
		list = append(list, fmt.Sprint(look.Seeds))
	}
	return enumerate(list)
}

// SmallestText states the smallest margins that both losses of an arm would have passed.
func (v view) SmallestText() string {
	var list []string
	for i, arm := range v.Arms {
		if i > 0 && tested(arm.Train) && tested(arm.HeldOut) {
			list = append(list, fmt.Sprintf("%s for %s", figure.Percentage(max(arm.Train.Smallest, arm.HeldOut.Smallest), 2), arm.Name))
		}
	}
	return enumerate(list)
}

// OneSeed reports whether the compared arms have one seed.
func (v view) OneSeed() bool { return len(v.Setup.Seeds) < 2 }

// SeedsText lists the seeds.
func (v view) SeedsText() string {
	var list []string
	for _, seed := range v.Setup.Seeds {
		list = append(list, fmt.Sprint(seed))
	}
	return strings.Join(list, ", ")
}

// TokensText returns the number of tokens that a run trains on.
func (v view) TokensText() string {
	return console.Thousands(float64(v.Setup.Steps) * float64(v.Setup.Batch) * float64(v.Setup.Seq))
}

// ParametersText returns the number of the model's parameters.
func (v view) ParametersText() string { return console.Thousands(float64(v.Setup.Parameters)) }
