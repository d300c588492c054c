package measuring

import (
	"testing"

	"spmoe/bench/projection"
	"spmoe/internal/testing/browser"
)

// A browser draws the page of a projection at the width of a desk and of a phone.
func TestBrowserProjection(t *testing.T) {
	b, err := projection.Project(projection.Target())
	if err != nil {
		t.Fatal(err)
	}
	p := Projection{
		Budget: b, Notes: []string{`<b>note & "quotes"</b>`},
		Published: []PublishedRun{{ID: "a", Framework: "b", Published: 2, Projected: 3, Low: 1, High: 4}},
	}
	html, err := p.page().HTML()
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{1280, 390} {
		if charts := browser.Check(t, html, width); len(charts) != 1 {
			t.Errorf("%d pixels: charts %q", width, charts)
		}
	}
}
