package runfile

// What a run is expected to reach, and how that compares with what it reached.

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"spmoe/launcher/report"
	"spmoe/launcher/system"
)

// The ways in which an expectation came about.
const (
	Measured     = "measured"
	Extrapolated = "extrapolated"
)

// Expected is what a run of a file is expected to reach. The zero value expects nothing.
type Expected struct {
	Basis       string  `toml:"basis"`         // Measured or Extrapolated
	Machine     string  `toml:"machine"`       // on which time and memory were measured, or for which they are extrapolated
	Corpus      string  `toml:"corpus"`        // SHA-256 of its text
	Text        string  `toml:"text"`          // describes the corpus
	BitsPerByte float64 `toml:"bits_per_byte"` // of validation text
	Tolerance   float64 `toml:"tolerance"`     // of BitsPerByte, in percent
	Tokens      int64   `toml:"tokens"`        // trained on
	Minutes     float64 `toml:"minutes"`       // of all stages
	MemoryMiB   int64   `toml:"memory_mib"`    // maximum of the process
}

// isSet reports whether there is an expectation.
func (e Expected) isSet() bool { return e.Basis != "" }

func (e Expected) check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	numbers := []float64{e.BitsPerByte, float64(e.Tokens), e.Minutes, float64(e.MemoryMiB)}
	if !e.isSet() {
		must(e == Expected{Tolerance: e.Tolerance}, "expected has no basis: give %q or %q", Measured, Extrapolated)
		return errors.Join(errs...)
	}
	must(e.Basis == Measured || e.Basis == Extrapolated, "expected.basis is %q: use %q or %q", e.Basis, Measured, Extrapolated)
	must(e.Machine != "", "expected.machine is empty: name the machine of these times")
	must(slices.Min(numbers) > 0, "expected: give bits_per_byte, tokens, minutes and memory_mib, each above 0")
	must(e.Tolerance >= 0, "expected.tolerance is %g: give percent, 0 or more", e.Tolerance)
	return errors.Join(errs...)
}

// Reached is what a run has reached.
type Reached struct {
	Corpus      string // SHA-256 of its text
	BitsPerByte float64
	Tokens      int64
	Time        time.Duration
	Memory      int64 // bytes
}

// Row is a line of the comparison of a run with its expectation.
type Row struct {
	Name, Expected, Reached, Verdict string
}

// Rows returns the comparison.
func (e Expected) Rows(r Reached) []Row {
	rows := []Row{
		{"validation bits/byte", fmt.Sprintf("%.4f", e.BitsPerByte), fmt.Sprintf("%.4f", r.BitsPerByte), e.verdict(r)},
		{"tokens trained on", report.Thousands(float64(e.Tokens)), report.Thousands(float64(r.Tokens)), ""},
		{"time of all stages", report.Clock(time.Duration(e.Minutes * float64(time.Minute))), report.Clock(r.Time), ""},
		{"memory, maximum", system.Bytes(e.MemoryMiB << 20), system.Bytes(r.Memory), ""},
	}
	if !e.isSet() {
		for i := range rows {
			rows[i].Expected = "-"
		}
	}
	return rows
}

// comparable reports whether the losses are those of the same text.
func (e Expected) comparable(r Reached) bool {
	return e.isSet() && (e.Corpus == "" || e.Corpus == r.Corpus)
}

// Missed reports whether the loss of a run is worse than expected, on the same text.
func (e Expected) Missed(r Reached) bool {
	return e.comparable(r) && !(r.BitsPerByte <= e.BitsPerByte*(1+e.Tolerance/100))
}

// verdict says how the loss compares.
func (e Expected) verdict(r Reached) string {
	percent := 100 * (r.BitsPerByte/e.BitsPerByte - 1)
	switch {
	case !e.isSet():
		return "no expectation"
	case !e.comparable(r):
		return "another text than expected: not comparable"
	case e.Missed(r):
		return fmt.Sprintf("worse than expected: %+.2f %%, allowed are %g %%", percent, e.Tolerance)
	case percent < -e.Tolerance:
		return fmt.Sprintf("better than expected: %+.2f %%", percent)
	}
	return fmt.Sprintf("as expected: %+.2f %%", percent)
}

// About says where the expectation comes from.
func (e Expected) About() string {
	if !e.isSet() {
		return "the run file states no expectation"
	}
	about := fmt.Sprintf("expected: %s, %s", e.Basis, e.Machine)
	if e.Text != "" {
		about += ", " + e.Text
	}
	return about
}
