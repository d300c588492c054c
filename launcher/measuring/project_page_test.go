package measuring

import (
	"testing"

	"spmoe/bench/projection"
	"spmoe/internal/testing/browser"
)

// A browser draws every chart of the page of a projection, at the width of a desk and of a phone,
// and its controls work.
func TestBrowserProjection(t *testing.T) {
	p := Projection{Version: "v", Hash: "h", Notes: []string{`<b>note & "quotes"</b>`}}
	for _, s := range projection.Scenarios() {
		h, err := s.Project(projection.Central())
		if err != nil {
			t.Fatal(err)
		}
		p.Headlines, p.Ranges = append(p.Headlines, h), append(p.Ranges, [3]projection.Range{})
	}
	p.Budget = p.Headlines[0].Budgets[2]
	var err error
	if p.Swings, err = projection.HeadlineTornado(); err != nil {
		t.Fatal(err)
	}
	p.Effects = projection.PublishedEffects()
	html, err := p.page().HTML()
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{1280, 390} {
		if charts := browser.Check(t, html, width); len(charts) != 4 {
			t.Errorf("%d pixels: charts %q", width, charts)
		}
	}
	browser.Controls(t, html, "validation")
}
