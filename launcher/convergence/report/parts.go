package report

// The table of a decomposition: a difference and its parts.

import "spmoe/launcher/convergence"

// split is the decomposition of an arm's difference.
type split struct {
	Name  string
	Parts []partRow // none if a run diverged
}

// partRow is a row of the table.
type partRow struct {
	Name               string
	Train, TrainCI     string
	HeldOut, HeldOutCI string
}

// Splits returns the decompositions of the arms that have one.
func (v view) Splits() (list []split) {
	for _, arm := range v.Arms {
		if arm.Decomposition != nil {
			list = append(list, splitOf(arm))
		}
	}
	return list
}

func splitOf(arm convergence.Arm) split {
	s := split{Name: arm.Name}
	for _, part := range arm.Parts() {
		row := partRow{Name: part.Name}
		row.Train, row.TrainCI, _ = differenceTexts(part.Train)
		row.HeldOut, row.HeldOutCI, _ = differenceTexts(part.HeldOut)
		s.Parts = append(s.Parts, row)
	}
	return s
}
