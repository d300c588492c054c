package projected

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/bench/projection"
	"spmoe/internal/testing/svgtext"
)

// report has everything that is drawn, with few samples.
func report(t *testing.T) Report {
	t.Helper()
	r := Report{Version: "v", Hash: "h", Notes: []string{`<b>note & "quotes"</b>`}}
	for _, s := range projection.Scenarios() {
		h, err := s.Project(projection.Central())
		if err != nil {
			t.Fatal(err)
		}
		r.Headlines = append(r.Headlines, h)
		r.Ranges = append(r.Ranges, [3]projection.Range{})
	}
	r.Budget = r.Headlines[0].Budgets[2]
	var err error
	if r.Swings, err = projection.HeadlineTornado(); err != nil {
		t.Fatal(err)
	}
	if r.Groups, err = projection.Validate(10, 1); err != nil {
		t.Fatal(err)
	}
	return r
}

// The steps of the waterfall lead from one budget to the next.
func TestSteps(t *testing.T) {
	for _, h := range report(t).Headlines {
		for i, to := range h.Budgets[1:] {
			sum := h.Budgets[i].MS
			for _, s := range steps(h.Budgets[i], to) {
				sum += s.delta
			}
			if math.Abs(sum-to.MS) > 1e-4 {
				t.Errorf("%s: the steps lead to %.5f ms, not to %.5f", h.Scenario.Name, sum, to.MS)
			}
		}
	}
}

// Plots are well-formed, the page escapes what it is told, and writing twice gives the same.
func TestWrite(t *testing.T) {
	r := report(t)
	var pages [2]string
	for i := range pages {
		dir := t.TempDir()
		if err := Write(dir, r); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(filepath.Join(dir, "projection.html"))
		if err != nil {
			t.Fatal(err)
		}
		pages[i] = string(page)
		for _, name := range names() {
			svg, err := os.Open(filepath.Join(dir, "plots", name+".svg"))
			if err != nil {
				t.Fatal(err)
			}
			dec := xml.NewDecoder(svg)
			for err == nil {
				_, err = dec.Token()
			}
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", name, err)
			}
			svg.Close()
		}
	}
	if pages[0] != pages[1] {
		t.Error("the same report gives two pages")
	}
	if strings.Contains(pages[0], "<b>note") || !strings.Contains(pages[0], "&lt;b&gt;note") {
		t.Error("a note is not escaped")
	}
	if small, measured := svgtext.Small(pages[0], "narrow", 390-2*14, 11); measured < 50 || len(small) > 0 {
		t.Errorf("on a phone, of %d texts of figures these are too small or too long:\n%s", measured, strings.Join(small, "\n"))
	}
}
