package figure

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
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
	figures := []Figure{{Name: "one", Title: "One", Caption: "What is seen.", Panels: [][]*plot.Plot{{panel}}, Height: 200}}
	list, err := Sections([]Heading{{Title: "Nothing", Figures: []string{"two"}}, {Title: "All", Figures: []string{"two", "one"}}}, figures)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Title != "All" || len(list[0].Figures) != 1 {
		t.Fatalf("sections %+v", list)
	}
	svg := string(list[0].Figures[0].SVG)
	if left := regexp.MustCompile(`#[0-9A-Fa-f]{3,}`).FindString(svg); left != "" {
		t.Errorf("the colour %s is left", left)
	}
	style := style()
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

// Text has a contrast of 4.5 or more to the page, in light and dark.
func TestContrast(t *testing.T) {
	luminance := func(rgb uint32) (sum float64) {
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			c := float64(rgb>>(16-8*i)&255) / 255
			if c = c / 12.92; c > 0.04045/12.92 {
				c = math.Pow((12.92*c+0.055)/1.055, 2.4)
			}
			sum += weight * c
		}
		return sum
	}
	contrast := func(a, b uint32) float64 {
		x, y := luminance(a), luminance(b)
		return (max(x, y) + 0.05) / (min(x, y) + 0.05)
	}
	if got := contrast(0x009E73, 0xFFFFFF); math.Abs(got-3.42) > 0.01 {
		t.Fatalf("the contrast of a green is %.3f, want 3.42", got)
	}
	texts := regexp.MustCompile(`[^-]color:\s*var\(--(\w+)\)`).FindAllStringSubmatch(sheet, -1)
	if len(texts) < 8 {
		t.Errorf("the style sheet has %d colors of text", len(texts))
	}
	for _, text := range texts {
		for _, s := range Shades() {
			if s.Variable != text[1] {
				continue
			}
			if light, dark := contrast(s.Light, Paper.Light), contrast(s.Dark, Paper.Dark); light < 4.5 || dark < 4.5 {
				t.Errorf("text of %s: contrast %.2f in light, %.2f in dark", s.Variable, light, dark)
			}
		}
	}
}

// No rule of the style sheet has text below 13 pixels, except inside figures, which are scaled up.
func TestTextSize(t *testing.T) {
	sizes := regexp.MustCompile(`(?m)^(.*)font(?:-size)?:[^;]*?([\d.]+)px`).FindAllStringSubmatch(sheet, -1)
	if len(sizes) < 10 {
		t.Errorf("the style sheet has %d sizes of text", len(sizes))
	}
	for _, size := range sizes {
		if px, err := strconv.ParseFloat(size[2], 64); err != nil || px < 13 && !strings.HasPrefix(size[1], ".strip text") {
			t.Errorf("%s: %s pixels (%v)", size[1], size[2], err)
		}
	}
}

// A figure with views has one button per view, and one picture per view and layout. A logarithmic
// axis needs values above zero; a run of one step has no last half.
func TestViews(t *testing.T) {
	for _, c := range []struct {
		x, y []float64
		want string
	}{
		{[]float64{0, 1, 2}, []float64{6, 3, 2}, "all, logarithmic, last half"},
		{[]float64{0, 1, 2}, []float64{6, 3, 0}, "all, last half"},
		{[]float64{1}, []float64{6}, "all, logarithmic"},
	} {
		curve := Curve{Steps: c.x, Mean: c.y}
		f := Figure{Name: "loss", Title: "Loss", Height: 200}
		panel := func() *plot.Plot {
			p := NewPanel("", "step", "loss")
			p.Add(Path{X: c.x, Y: c.y}, Hover{{Name: "loss", X: c.x, Y: c.y, Shade: Palette[1]}})
			Extent{Max: 6.1}.Apply(&p.Y)
			Extent{Max: 2}.Apply(&p.X)
			return p
		}
		f.Panels = [][]*plot.Plot{{panel()}}
		f.AddViews(panel, curve)
		text, err := f.inline()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, label := range regexp.MustCompile(`<label for="loss-view\d">([^<]*)</label>`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, label[1])
		}
		if got := strings.Join(names, ", "); got != c.want || strings.Count(string(text), "<svg") != 2*len(names) || strings.Count(string(text), `checked="checked"`) != 1 {
			t.Errorf("views %s, want %s, and %d pictures", got, c.want, strings.Count(string(text), "<svg"))
		}
		for i := range names {
			if !strings.Contains(sheet, fmt.Sprintf("input:nth-of-type(%d):checked ~ svg:not(.view%[1]d)", i+1)) {
				t.Errorf("the style sheet does not hide what view %d does not show", i+1)
			}
		}
	}
}
