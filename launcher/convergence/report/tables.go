package report

// Tables as CSV, for spreadsheets and data frames. A number that is not finite or not known is an
// empty cell.

import (
	"bytes"
	"encoding/csv"
	"strconv"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
)

// table is a CSV file. The first row is its header.
type table struct {
	name string
	rows [][]string
}

func (t table) csv() []byte {
	var out bytes.Buffer
	if err := csv.NewWriter(&out).WriteAll(t.rows); err != nil {
		panic(err) // writes to a buffer cannot fail
	}
	return out.Bytes()
}

func tables(r convergence.Result) []table {
	return []table{{"steps.csv", stepRows(r)}, {"summary.csv", summaryRows(r)}, {"quantisation.csv", quantizationRows(r)}, {"router.csv", routerRows(r)}, {"course.csv", courseRows(r)}}
}

func cell(v float64) string {
	if !figure.Finite(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func stepRows(r convergence.Result) [][]string {
	rows := [][]string{{"arm", "seed", "step", "loss", "grad_norm", "lr", "imbalance", "seconds"}}
	eachLog(r, func(arm, seed string, log *record.Log) {
		for _, s := range log.Steps {
			rows = append(rows, []string{
				arm, seed, strconv.Itoa(s.Step), cell(float64(s.Loss)), cell(float64(s.GradNorm)), cell(s.LR), cell(s.Imbalance), cell(s.Seconds),
			})
		}
	})
	return rows
}

// summaryRows has losses in nats per token, as means over seeds. Differences are fractions of the
// baseline's loss.
func summaryRows(r convergence.Result) [][]string {
	head := []string{"arm", "ablation", "seeds", "verdict", "tokens_per_second"}
	for _, loss := range []string{"train", "held_out", "averaged"} {
		for _, column := range []string{"loss", "difference", "difference_sd", "ci95_low", "ci95_high", "ci90_low", "ci90_high", "tost_p", "smallest_margin"} {
			head = append(head, loss+"_"+column)
		}
	}
	rows := [][]string{head}
	for _, arm := range r.Arms {
		row := []string{arm.Name, strconv.FormatBool(arm.Ablation), strconv.Itoa(len(arm.Runs)), arm.Verdict, cell(arm.Speed)}
		train, heldOut := finalLosses(arm)
		row = append(append(row, cell(train)), differenceCells(arm.Train)...)
		row = append(append(row, cell(heldOut)), differenceCells(arm.HeldOut)...)
		rows = append(rows, append(row, averagedCells(r.Setup, arm)...))
	}
	return rows
}

// averagedCells has the second outcome, or empty cells without one.
func averagedCells(setup convergence.Setup, arm convergence.Arm) []string {
	loss, d := "", (*convergence.Difference)(nil)
	if setup.EMA != 0 {
		loss = cell(averagedLoss(arm))
	}
	if arm.Averaged != nil {
		d = arm.Averaged.Difference
	}
	return append([]string{loss}, differenceCells(d)...)
}

func differenceCells(d *convergence.Difference) []string {
	cells := make([]string, 8)
	if d != nil {
		cells[0] = cell(d.Mean)
	}
	if tested(d) {
		for i, v := range []float64{d.SD, d.CI95[0], d.CI95[1], d.CI90[0], d.CI90[1], d.P, d.Smallest} {
			cells[1+i] = cell(v)
		}
	}
	return cells
}

func quantizationRows(r convergence.Result) [][]string {
	rows := [][]string{{"arm", "seed", "step", "layer", "linear", "tensor", "format", "sqnr_db", "saturated_share", "flushed_share"}}
	eachLog(r, func(arm, seed string, log *record.Log) {
		for _, q := range log.Quantized {
			one := []record.Quantized{q}
			rows = append(rows, []string{
				arm, seed, strconv.Itoa(q.Step), strconv.Itoa(q.Layer), q.Linear, q.Tensor, q.Format,
				cell(q.SQNR()), cell(saturated(one) / 100), cell(flushed(one) / 100),
			})
		}
	})
	return rows
}

func routerRows(r convergence.Result) [][]string {
	rows := [][]string{{"arm", "step", "layer", "shared_choices"}}
	for _, arm := range r.Arms {
		for _, a := range arm.Agreement {
			rows = append(rows, []string{arm.Name, strconv.Itoa(a.Step), strconv.Itoa(a.Layer), cell(a.Share)})
		}
	}
	return rows
}

// courseRows has the differences in training loss over the course of the run, as fractions.
func courseRows(r convergence.Result) [][]string {
	rows := [][]string{{"arm", "from_step", "to_step", "difference", "ci95_low", "ci95_high"}}
	for _, arm := range r.Arms {
		for _, w := range arm.Course {
			rows = append(rows, []string{arm.Name, strconv.Itoa(w.From), strconv.Itoa(w.To), cell(w.Mean), cell(w.CI95[0]), cell(w.CI95[1])})
		}
	}
	return rows
}

func eachLog(r convergence.Result, f func(arm, seed string, log *record.Log)) {
	for _, arm := range r.Arms {
		for _, run := range arm.Runs {
			if run.Log != nil {
				f(arm.Name, strconv.FormatUint(run.Seed, 10), run.Log)
			}
		}
	}
}
