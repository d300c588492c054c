package figure

import (
	"regexp"
	"strings"
	"testing"

	"gonum.org/v1/plot"
)

// Every colour of a figure inside a page is a variable, be it opaque or not, so that it follows the
// page into the dark.
func TestInlineColors(t *testing.T) {
	panel := NewPanel("panel", "x", "y")
	x := []float64{0, 1, 2}
	for i, shade := range Palette {
		for _, alpha := range []uint8{255, 254, 215, 128, 42, 40, 7} {
			y := float64(i)
			panel.Add(Band{X: x, Low: []float64{y, y, y}, High: []float64{y + 1, y + 1, y + 1}, Fill: shade.Alpha(alpha)})
		}
	}
	panel.Add(Span{Low: 1, High: 2})
	Extent{Max: 2}.Apply(&panel.X)
	Extent{Max: float64(len(Palette) + 1)}.Apply(&panel.Y)
	drawings, err := DrawAll([]Figure{{Name: "one", Title: "One", Caption: "What is seen.", Panels: [][]*plot.Plot{{panel}}, Height: 200}})
	if err != nil {
		t.Fatal(err)
	}
	list := Sections([]Heading{{Title: "Nothing", Figures: []string{"two"}}, {Title: "All", Figures: []string{"two", "one"}}}, drawings)
	if len(list) != 1 || list[0].Title != "All" || len(list[0].Figures) != 1 {
		t.Fatalf("sections %+v", list)
	}
	svg := string(list[0].Figures[0].SVG)
	if left := regexp.MustCompile(`#[0-9A-Fa-f]{3,}`).FindString(svg); left != "" {
		t.Errorf("the colour %s is left", left)
	}
	style := string(Style())
	for _, s := range Shades() {
		if strings.Count(style, "--"+s.Variable+":") != 2 {
			t.Errorf("%s is not defined for light and dark", s.Variable)
		}
	}
	for _, s := range Palette {
		if !strings.Contains(svg, "var(--"+s.Variable+")") {
			t.Errorf("%s is not used", s.Variable)
		}
	}
	if (Shade{Light: 0x101010}).is("#101110") || (Shade{Light: 0x101010}).is("#100E10") || !(Shade{Light: 0x101010}).is("#0F100F") {
		t.Error("another colour is taken for a shade")
	}
}
