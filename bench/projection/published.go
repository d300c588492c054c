package projection

// Published throughput: data/published.json.

import "fmt"

// publishedRows is data/published.json.
type publishedRows struct {
	About    string     `json:"about"`
	Rows     []Row      `json:"rows"`
	Excluded []Excluded `json:"excluded"`
}

// Row is one published throughput.
type Row struct {
	ID string `json:"id"`
	// H1 to H4, calibration, headline; empty: only the base of another row
	Group     string  `json:"group"`
	From      string  `json:"from"` // the row whose published figure this one is predicted from
	Published float64 `json:"published"`
	Source    string  `json:"source"`
	Note      string  `json:"note"`
	// the layout that it is predicted from is not published: left out of discrepancies
	Assumed bool `json:"assumed"`
	// why it is a fit and no test: a number of the model comes from the same source
	Fit string `json:"fit"`
	Run Run    `json:"run"`
}

// Excluded lists published rows that are not predicted, and why.
type Excluded struct {
	Rows string `json:"rows"`
	Why  string `json:"why"`
}

// Rows returns the published rows.
func Rows() []Row { return data().published.Rows }

// publishedRun returns the run of a row.
func publishedRun(id string) Run {
	for _, r := range Rows() {
		if r.ID == id {
			return r.Run
		}
	}
	panic(fmt.Sprintf("projection: no published row %q", id))
}

// ExcludedRows returns the rows that are not predicted.
func ExcludedRows() []Excluded { return data().published.Excluded }
