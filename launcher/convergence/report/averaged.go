package report

// The table of the second outcome: the validation loss of averaged weights.

import (
	"spmoe/launcher/convergence"
	"spmoe/launcher/report/figure"
)

// averagedRow is a row of the table.
type averagedRow struct {
	Name, Verdict, Loss, By, CI, P, Smallest string
}

// AveragedWeights returns the rows of the baseline and of the compared arms; nil without averaged
// weights.
func (v view) AveragedWeights() (list []averagedRow) {
	if v.Setup.EMA == 0 {
		return nil
	}
	for i, arm := range v.Arms {
		if i > 0 && arm.Averaged == nil {
			continue // an ablation
		}
		row := averagedRow{Name: arm.Name, Verdict: convergence.Baseline, Loss: figure.Loss(averagedLoss(arm)), By: figure.Missing}
		if arm.Averaged != nil {
			d := arm.Averaged.Difference
			row.Verdict = arm.Averaged.Verdict
			row.By, row.CI, row.P = differenceTexts(d)
			if tested(d) {
				row.Smallest = figure.Percentage(d.Smallest, 2)
			}
		}
		list = append(list, row)
	}
	return list
}

// averagedLoss returns the mean over seeds. It is NaN if a seed's loss is not finite.
func averagedLoss(arm convergence.Arm) (loss float64) {
	for _, run := range arm.Runs {
		loss += float64(run.Averaged) / float64(len(arm.Runs))
	}
	return loss
}
