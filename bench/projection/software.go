package projection

// The software of the rows of a blind test, from public descriptions of it.

import (
	"fmt"
	"path"
	"slices"
)

// software is data/software.json.
type software struct {
	About   string          `json:"about"`
	Entries []softwareEntry `json:"entries"`
}

// softwareEntry describes the software of the rows that match a pattern.
type softwareEntry struct {
	Rows    []string         `json:"rows"`
	Source  string           `json:"source"`
	Options []softwareOption `json:"options"`
	// standard deviation of the logarithm, for what the description leaves open
	Deviation float64 `json:"deviation"`
}

// softwareOption is one alternative. What it sets counts where a row has none.
type softwareOption struct {
	Stack      string  `json:"stack"`
	Weight     float64 `json:"weight"` // 0: 1
	Graphs     string  `json:"graphs"`
	Recompute  string  `json:"recompute"`
	MicroBatch int     `json:"micro_batch"`
	Batch      int     `json:"batch"`
	PP         int     `json:"pp"`
	VP         int     `json:"vp"`
	EP         int     `json:"ep"`
}

func (s software) entry(id string) (softwareEntry, error) {
	for _, e := range s.Entries {
		if slices.ContainsFunc(e.Rows, func(pattern string) bool { ok, _ := path.Match(pattern, id); return ok }) {
			return e, nil
		}
	}
	return softwareEntry{}, fmt.Errorf("no entry of data/software.json describes the software of %q: add one", id)
}
