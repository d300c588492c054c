package convergence

// The files of a result: its page, one figure, and all numbers as JSON.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/report/page"
	"spmoe/launcher/system"
)

// resultFile is the name of the file with all numbers of a result.
const resultFile = "result.json"

// Write writes these files to a folder, which it creates if necessary. Each one is replaced as a
// whole, the page last.
//
//	result.json   the result without the logs of the runs
//	forest.png    the differences of all arms to the baseline
//	report.html   the page
func (r Result) Write(folder string) error {
	r = cleaned(r)
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", resultFile, err)
	}
	if err := system.WriteFile(filepath.Join(folder, resultFile), append(text, '\n')); err != nil {
		return err
	}
	if err := r.writeForest(filepath.Join(folder, "forest.png")); err != nil {
		return err
	}
	return r.page().Write(filepath.Join(folder, page.File))
}

// page returns the page of a result.
func (r Result) page() page.Page {
	var out page.Page
	var names []string
	for _, a := range r.Arms[1:] {
		names = append(names, a.Name)
		first, _, _ := strings.Cut(r.Statement(a), "\n")
		out.Lead = append(out.Lead, first)
	}
	out.Title = strings.Join(names, ", ") + " against " + r.Arms[0].Name
	if len(names) == 0 {
		out.Title = r.Arms[0].Name + ", compared with no other arm"
	}
	if v := r.Verdict(); v != "" {
		out.Badges = []page.Badge{{Text: v, Class: judgment[v]}}
	}
	if text := r.Lowest(); text != "" {
		out.Lead = append(out.Lead, text)
	}
	add := func(title string, blocks ...page.Block) {
		blocks = slices.DeleteFunc(blocks, func(b page.Block) bool {
			return b.Table == nil && len(b.Charts) == 0 && b.Note == "" && b.Text == "" && b.Code == "" && b.Terms == nil
		})
		if len(blocks) > 0 {
			out.Sections = append(out.Sections, page.Section{Title: title, Blocks: blocks})
		}
	}
	c := charts{r}
	add("Final losses", r.losses(), r.spreadNote(), page.Block{Charts: c.forests()}, r.statements())
	add("Averaged weights", r.averaged()...)
	add("Over training", page.Block{Charts: c.overTraining()})
	add("Experts and routing", page.Block{Charts: c.routing()})
	add("Quantization", r.cost(), r.jobsNote(), page.Block{Charts: c.quantization()}, r.weakest())
	add("Where the time goes", r.times()...)
	add("Method", r.method()...)
	add("Setup", r.setup()...)
	return out
}

// judgment is the class of a verdict.
var judgment = map[string]string{Equivalent: page.Good, Different: page.Bad, Undecided: page.Warn}

// named is the first cell of an arm's row.
func (r Result) named(i int) page.Cell { return page.Cell{Text: r.Arms[i].Name, Color: &i} }

// losses is the table of the final losses.
func (r Result) losses() page.Block {
	table := page.Table{Head: page.Cells("arm", "verdict", "training loss", "difference", "validation loss", "difference", "TOST p")}
	for i, about := range []string{"", "", "nats per token", "[95% CI], %", "nats per token", "[95% CI], %", "training, validation"} {
		table.Head[i].Small = about
	}
	for i, a := range r.Arms {
		name := r.named(i)
		name.Small = a.About
		verdict := page.Cell{Text: a.Verdict, Class: judgment[a.Verdict]}
		diverged, skipped := 0, 0
		for _, run := range a.Runs {
			if skipped += run.Skipped; run.Diverged {
				diverged++
			}
		}
		if diverged > 0 {
			verdict.Small = fmt.Sprintf("%d diverged", diverged)
		} else if skipped > 0 {
			verdict.Small = report.Plural(skipped, "skipped step")
		}
		train, trainP := differenceCells(a.Train)
		heldOut, heldOutP := differenceCells(a.HeldOut)
		table.Rows = append(table.Rows, []page.Cell{
			name, verdict, {Text: report.Loss(meanOf(a, trainLoss))}, train, {Text: report.Loss(meanOf(a, heldOutLoss))}, heldOut,
			{Text: trainP, Small: heldOutP},
		})
	}
	return page.Block{Table: &table}
}

func meanOf(a Arm, of func(Run) float64) float64 { return mean(losses(a.Runs, of)) }

// differenceCells returns a difference with its interval, and the p of its test.
func differenceCells(d *Difference) (cell page.Cell, p string) {
	switch {
	case d == nil:
		return page.Cell{Text: report.Missing}, ""
	case d.Seeds < 2:
		return page.Cell{Text: signed(100*d.Mean, 3)}, ""
	}
	interval := fmt.Sprintf("[%s, %s]", signed(100*d.CI95[0], 3), signed(100*d.CI95[1], 3))
	return page.Cell{Text: signed(100*d.Mean, 3), Small: interval}, probability(d.P)
}

func (r Result) spreadNote() page.Block {
	if len(r.Arms[0].Runs) < 2 || r.Spread.Train.SD == 0 && r.Spread.HeldOut.SD == 0 {
		return page.Block{}
	}
	return page.Block{
		Note: fmt.Sprintf("For scale: the %d seeds of %s have a standard deviation of %s (training loss) and %s (validation loss).",
			len(r.Arms[0].Runs), r.Arms[0].Name, report.Percentage(r.Spread.Train.SD, 3), report.Percentage(r.Spread.HeldOut.SD, 3)),
	}
}

func (r Result) statements() page.Block {
	var list []string
	for _, a := range r.Arms[1:] {
		list = append(list, r.Statement(a))
	}
	return page.Block{Code: strings.Join(list, "\n")}
}

// averaged is the table of the second outcome.
func (r Result) averaged() []page.Block {
	if r.Setup.EMA == 0 {
		return nil
	}
	table := page.Table{Head: page.Cells("arm", "verdict", "validation loss", "difference", "TOST p", "smallest margin")}
	table.Head[1].Small, table.Head[3].Small = "of this loss alone", "[95% CI], %"
	for i, a := range r.Arms {
		row := []page.Cell{r.named(i), {Text: a.Verdict}, {Text: report.Loss(meanOf(a, averagedLoss))}, {Text: report.Missing}, {}, {}}
		if a.Averaged != nil {
			row[1] = page.Cell{Text: a.Averaged.Verdict, Class: judgment[a.Averaged.Verdict]}
			row[3], row[4].Text = differenceCells(a.Averaged.Difference)
			if d := a.Averaged.Difference; d != nil && d.Seeds > 1 {
				row[5].Text = report.Percentage(d.Smallest, 2)
			}
		}
		table.Rows = append(table.Rows, row)
	}
	return []page.Block{
		{Text: fmt.Sprintf("The second outcome: the validation loss with an exponential moving average of the weights, of decay %v per step, "+
			"after the last step. Its verdict has no effect on the verdict of an arm, which training and validation loss decide. "+
			"It is reached after the same seeds and at the same levels, which are not corrected for it.", r.Setup.EMA)},
		{Table: &table},
	}
}

// cost is the table of what arms cost and what they lose.
func (r Result) cost() page.Block {
	table := page.Table{Head: page.Cells("arm", "SQNR, dB, median", "flushed to zero", "saturated", "router agreement", "tokens/s", "speed")}
	about := []string{"", "inputs / weights / gradients", "of all values", "of all values", "after the last step", "", "to the baseline"}
	for i, about := range about {
		table.Head[i].Small = about
	}
	for i, a := range r.Arms {
		sqnr := fmt.Sprintf("%s / %s / %s", dB(a, record.Input), dB(a, record.Weight), dB(a, record.Gradient))
		all := a.Quantized("")
		row := page.Cells(
			sqnr,
			rare(shareOf(all, flushed)),
			rare(shareOf(all, saturated)),
			sameExperts(a),
			report.Thousands(a.Speed),
			ratio(a.Speed, r.Arms[0].Speed),
		)
		table.Rows = append(table.Rows, append([]page.Cell{r.named(i)}, row...))
	}
	return page.Block{Table: &table}
}

// rare formats a small share of counted values, given in percent.
func rare(percent float64) string {
	switch {
	case !finite(percent):
		return report.Missing
	case percent == 0:
		return "0"
	case percent < 0.0001:
		return "<0.0001%"
	}
	return strconv.FormatFloat(percent, 'g', 2, 64) + "%"
}

func (r Result) jobsNote() page.Block {
	if r.Setup.Jobs < 2 {
		return page.Block{}
	}
	return page.Block{Note: fmt.Sprintf("%d runs shared the machine: their speeds are not comparable.", r.Setup.Jobs)}
}

// times is the table of step times by kind of work, the longest of all arms first.
func (r Result) times() []page.Block {
	table := page.Table{Head: page.Cells("kind of work")}
	longest := map[string]float64{} // seconds
	var measured []int
	for i, a := range r.Arms {
		if a.Times == nil {
			continue
		}
		measured = append(measured, i)
		table.Head = append(table.Head, r.named(i))
		for kind, seconds := range a.Times.Families {
			longest[kind] = max(longest[kind], seconds)
		}
	}
	if len(measured) == 0 {
		return nil
	}
	kinds := slices.SortedFunc(maps.Keys(longest), func(a, b string) int { return cmp.Or(cmp.Compare(longest[b], longest[a]), strings.Compare(a, b)) })
	for _, kind := range kinds {
		row := page.Cells(kind)
		for _, i := range measured {
			seconds := r.Arms[i].Times.Families[kind]
			row = append(row, page.Cell{Text: report.Fixed(1e3*seconds, 1), Bar: max(seconds, 0) / max(longest[kinds[0]], 1e-12), Color: &i})
		}
		table.Rows = append(table.Rows, row)
	}
	total := page.Cells("step")
	for _, i := range measured {
		total = append(total, page.Cell{Text: report.Fixed(1e3*r.Arms[i].Times.Seconds, 1)})
	}
	table.Rows = append(table.Rows, total)
	text := "Milliseconds of a warm step by kind of work, mean over steps and ranks of each arm’s first run. " +
		"Products are named by format and pass."
	if r.Setup.Jobs > 1 {
		text += " Several runs shared the machine, so compare shares, not times."
	}
	return []page.Block{{Text: text}, {Table: &table}}
}

func (r Result) method() []page.Block {
	margin := report.Percentage(r.Margin, 2)
	varied := ""
	if len(r.Varied) > 0 {
		varied = fmt.Sprintf("The arms vary %s. Settings that change the shape of the model or the batch leave arms the seed in common, "+
			"but not all weights or tokens. Each arm has tests of its own: of many arms without a difference, up to 5%% may be called different.",
			strings.Join(r.Varied, " and "))
	}
	looks := ""
	if len(r.Looks) > 0 {
		var after []string
		for _, look := range r.Looks {
			after = append(after, fmt.Sprint(look.Seeds))
		}
		looks = fmt.Sprintf(" and for all looks, after %s seeds,", strings.Join(after, ", "))
	}
	limits := "Limits: the t-tests assume normally distributed differences, which few seeds can neither confirm nor refute. " +
		"The verdict is about this model, this length of training and this margin. " +
		"Bands in the charts are the lowest and the highest seed, not confidence intervals."
	if len(r.Setup.Seeds) < 2 {
		limits += " One seed says nothing about others, so there are no intervals and no tests."
	}
	return []page.Block{
		{Text: fmt.Sprintf("For each seed, every arm starts from the same weights and reads the same tokens in the same order. "+
			"So each seed gives one pair of losses per arm, and their relative difference is free of most of the scatter between seeds. "+
			"A run’s training loss is the mean of its last %d steps, "+
			"its validation loss that of a fixed text after the last step.", r.Setup.Tail)},
		{Text: varied},
		{
			Text: fmt.Sprintf(
				"Equivalence is tested by two one-sided t-tests (TOST) over the paired differences, one against +%s and one against −%s: "+
					"an arm is equivalent if both losses reject both. Otherwise it is different if the 95%% interval of a loss leaves out zero, "+
					"and undecided if neither is shown. Intervals hold for both losses%s together: the chance to call an arm equivalent "+
					"whose difference is as large as the margin is at most 5%%, and so is the chance to call an arm different that is not. "+
					"Seeds, margin and levels are those of plan.toml, which was written before the first run.",
				margin,
				margin,
				looks,
			),
		},
		{Text: limits},
	}
}

func (r Result) setup() []page.Block {
	s := r.Setup
	var machines, seeds []string
	for _, m := range r.Machines {
		machines = append(machines, fmt.Sprintf("%s, %s, %s", m.CPU, report.Plural(m.Cores, "core"), m.Tier))
	}
	for _, seed := range s.Seeds {
		seeds = append(seeds, fmt.Sprint(seed))
	}
	term := func(name, text string) page.Term { return page.Term{Name: name, Texts: page.Cells(text)} }
	tokens := report.Thousands(float64(s.Steps) * float64(s.Batch) * float64(s.Seq))
	terms := []page.Term{
		term("model", fmt.Sprintf("%s, %s parameters", s.Flavor, report.Thousands(float64(s.Parameters)))),
		term("training", fmt.Sprintf("%d steps of %d sequences of %d tokens: %s tokens per run", s.Steps, s.Batch, s.Seq, tokens)),
		term("seeds", strings.Join(seeds, ", ")),
		term("machine", fmt.Sprintf("%s; %s", strings.Join(machines, "; "), report.Plural(s.Ranks, "rank"))),
		term("plan", "SHA-256 "+r.Plan),
		{Name: "command", Texts: []page.Cell{{Text: r.Command, Class: page.Mono}}},
		term("version", r.Version),
		{Name: "files", Texts: []page.Cell{{Text: resultFile, Link: resultFile}, {Text: "plan.toml", Link: "plan.toml"}}},
	}
	blocks := []page.Block{{Terms: terms}}
	if s.Config != "" {
		blocks = append(blocks, page.Block{Summary: "configuration of the baseline’s first run", Code: s.Config})
	}
	return blocks
}
