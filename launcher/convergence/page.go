package convergence

// The result of a comparison in words, and its files: a page, and all numbers as JSON.

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"spmoe/launcher/report"
	"spmoe/launcher/report/page"
	"spmoe/launcher/system"
)

// null returns the null arm.
func (r Result) null() ArmResult { return r.Arms[len(r.Arms)-1] }

// Verdict returns the verdict over all arms except the null arm: different if any arm is, else
// undecided if any is, else equivalent. It is undecided if the null arm is different.
func (r Result) Verdict() string {
	if r.null().Verdict == Different {
		return Undecided
	}
	verdict := Equivalent
	for _, a := range r.Arms[1 : len(r.Arms)-1] {
		if a.Verdict != Equivalent && verdict != Different {
			verdict = a.Verdict
		}
	}
	return verdict
}

// conditions says what a verdict holds for.
func (r Result) conditions() string {
	s := r.Setup
	tokens := float64(s.Steps) * float64(s.Batch) * float64(s.Seq)
	return fmt.Sprintf("%s with %s parameters, %.2g tokens per parameter, %s", s.Flavor, report.Count(s.Parameters),
		tokens/float64(s.Parameters), report.Plural(len(s.Seeds), "seed"))
}

// Sentence states an arm's verdict, what it rests on and what it holds for.
func (r Result) Sentence(a ArmResult) string {
	base, verdict := r.Arms[0].Name, strings.ToUpper(a.Verdict)
	if failure := r.failure(a); failure != "" {
		return fmt.Sprintf("%s is %s: %s (%s)", a.Name, verdict, failure, r.conditions())
	}
	text := fmt.Sprintf("%s is %s", a.Name, verdict)
	switch a.Verdict {
	case Equivalent:
		text += fmt.Sprintf(" to %s within %.3g %%", base, 100*r.Margin)
	case Different:
		text += " from " + base
	default:
		text += fmt.Sprintf(": it was not shown to be equivalent to %s within %.3g %%, nor to differ", base, 100*r.Margin)
	}
	text += fmt.Sprintf(": training loss %s, validation loss %s, p %s after Holm, least margin %.2f %% (%s)",
		a.Train, a.HeldOut, probability(a.Holm), 100*a.leastMargin(), r.conditions())
	switch {
	case a.Verdict == Undecided:
		// To show it with a chance of 80 % takes the normal quantiles of 0.95 and 0.9, whose sum is
		// 2.93, and some more seeds because the scatter is an estimate.
		seeds := 2 + math.Ceil(math.Pow(2.93*max(a.Train.SD, a.HeldOut.SD)/r.Margin, 2))
		text += fmt.Sprintf("; if there is no difference, about %.0f new seeds would show equivalence with a chance of 80 %%", seeds)
	case a.Verdict == Different && a.Name == r.null().Name:
		text += "; it differs in rounding alone, so this comparison cannot be trusted"
	}
	return text
}

// failure says why an arm has no test, or returns "".
func (r Result) failure(a ArmResult) string {
	for _, arm := range []ArmResult{r.Arms[0], a} {
		for _, run := range arm.Runs {
			if run.Diverged {
				return fmt.Sprintf("%s has diverged with seed %d, its loss is no better than chance", arm.Name, run.Seed)
			}
		}
	}
	switch {
	case a.Train == nil || a.HeldOut == nil:
		return "it has no finite difference"
	case len(a.Runs) == 1:
		return fmt.Sprintf("one seed says nothing about others: training loss %s, validation loss %s", a.Train, a.HeldOut)
	}
	return ""
}

// leastMargin returns the least margin within which both losses would have been equivalent.
func (a ArmResult) leastMargin() float64 { return max(a.Train.LeastMargin, a.HeldOut.LeastMargin) }

// String shows the mean in percent, with its 95 % interval if there are several seeds.
func (d *Difference) String() string {
	text := fmt.Sprintf("%+.2f %%", 100*d.Mean)
	if len(d.Pairs) > 1 {
		text += fmt.Sprintf(" (%+.2f to %+.2f)", 100*d.CI95[0], 100*d.CI95[1])
	}
	return text
}

func probability(p float64) string {
	if p < 0.0001 {
		return "<0.0001"
	}
	return fmt.Sprintf("%.2g", p)
}

// resultFile is the name of the file with all numbers of a result.
const resultFile = "result.json"

// Write writes the numbers and the page of a result to a folder. Each file is replaced as a whole.
func (r Result) Write(folder string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = system.WriteFile(filepath.Join(folder, resultFile), append(text, '\n'))
	}
	if err == nil {
		err = r.page().Write(filepath.Join(folder, page.File))
	}
	return err
}

// page returns the page of a result. Before the end it shows no loss: to stop at a result that
// pleases would spoil the tests.
func (r Result) page() page.Page {
	var names []string
	for _, a := range r.Arms[1:] {
		names = append(names, a.Name)
	}
	out := page.Page{Title: strings.Join(names, ", ") + " against " + r.Arms[0].Name}
	if !r.Finished {
		out.Badges = []page.Badge{{Text: "not finished"}}
		out.Lead = []string{"The verdicts come after the last run. To continue after a stop: " + r.Command}
		out.Sections = []page.Section{r.decided()}
		return out
	}
	out.Badges = []page.Badge{{Text: r.Verdict(), Class: judgment[r.Verdict()]}}
	for _, a := range r.Arms[1:] {
		out.Lead = append(out.Lead, r.Sentence(a))
	}
	out.Sections = []page.Section{{Title: "Final losses", Blocks: []page.Block{r.table(), {Charts: []page.Chart{r.forest()}}}}, r.decided()}
	return out
}

// judgment is the class of a verdict.
var judgment = map[string]string{Equivalent: page.Good, Different: page.Bad, Undecided: page.Warn}

// table is the table of the final losses.
func (r Result) table() page.Block {
	table := page.Table{Head: page.Cells("arm", "verdict", "training loss", "validation loss", "p after Holm", "least margin")}
	for i, a := range r.Arms {
		row := []page.Cell{{Text: a.Name, Small: a.About, Color: &i}, {Text: a.Verdict, Class: judgment[a.Verdict]}}
		for _, l := range []loss{training, validation} {
			nats, _ := meanSD(losses(a.Runs, l))
			cell := page.Cell{Small: report.Loss(nats) + " nats per token"}
			if d := l.difference(a); d != nil {
				cell.Text, cell.Small = d.String(), cell.Small+"\nTOST p "+probability(d.Equivalence)
			}
			row = append(row, cell)
		}
		p, margin := "", ""
		if i > 0 && r.failure(a) == "" {
			p, margin = probability(a.Holm), report.Percentage(a.leastMargin(), 2)
		}
		table.Rows = append(table.Rows, append(row, page.Cells(p, margin)...))
	}
	return page.Block{Table: &table}
}

// forest is the forest plot of both losses.
func (r Result) forest() page.Chart {
	forest := page.Chart{
		ID: "forest", Title: "Differences from " + r.Arms[0].Name, Kind: page.Rows, Wide: true, X: page.Axis{Name: "difference, %"}, Zone: &page.Range{-100 * r.Margin, 100 * r.Margin},
		Caption: "Dots are means over seeds, bars their 95 % intervals, rings single seeds. The zone is the margin. " +
			"An arm is equivalent if the 90 % intervals of both losses, a little shorter than the bars, lie in it.",
	}
	for i, a := range r.Arms[1:] {
		for _, l := range []loss{training, validation} {
			row := page.Row{Name: a.Name + ", " + l.name, Note: "no finite difference"}
			if d := l.difference(a); d != nil {
				mark := func(kind string, from, to float64) {
					row.Marks = append(row.Marks, page.Mark{Kind: kind, From: 100 * from, To: 100 * to, Color: i + 1})
				}
				for _, pair := range d.Pairs {
					mark(page.Ring, pair, pair)
				}
				mark(page.Interval, d.CI95[0], d.CI95[1])
				mark(page.Dot, d.Mean, d.Mean)
				row.Note = d.String()
			}
			forest.Rows = append(forest.Rows, row)
		}
	}
	return forest
}

// decided says what was decided before the first run, and how to repeat it.
func (r Result) decided() page.Section {
	var arms []page.Cell
	for _, a := range r.Arms {
		arms = append(arms, page.Cell{Text: a.Name, Small: a.About})
	}
	terms := []page.Term{{Name: "arms, baseline first and null arm last", Texts: arms}}
	for _, term := range [][2]string{
		{"runs", fmt.Sprintf("%s: %d steps of %d sequences of %d tokens each", r.conditions(), r.Setup.Steps, r.Setup.Batch, r.Setup.Seq)},
		{"seeds", strings.Trim(fmt.Sprint(r.Setup.Seeds), "[]")},
		{"margin", report.Percentage(r.Margin, 2)},
		{"equivalent if", equivalenceRule},
		{"different if", differenceRule},
		{"kept", recordsRule},
		{"plan", planFile + ", SHA-256 " + r.Plan},
		{"command", r.Command},
		{"version", r.Version},
	} {
		terms = append(terms, page.Term{Name: term[0], Texts: page.Cells(term[1])})
	}
	return page.Section{Title: "Decided before the first run", Blocks: []page.Block{{Terms: terms}}}
}
