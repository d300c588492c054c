package report

// The page's table of step times by kind of work.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
)

// timesTable has one column per arm and one row per kind of work.
type timesTable struct {
	Heads []timesHead
	Rows  []timesRow
}

type timesHead struct{ Name, Shade string }

type timesRow struct {
	Family string
	Cells  []timesCell
}

type timesCell struct {
	Shade        string
	Milliseconds string
	Width        string // of the bar, in pixels
}

// barWidth is the width of the longest bar, in pixels.
const barWidth = 64

// Times returns the table, or nil if no arm has measured times.
func (v view) Times() *timesTable {
	var t timesTable
	var measured []*record.Times
	longest := map[string]float64{} // seconds per family, the largest of all arms
	for i, arm := range v.Arms {
		if arm.Times == nil {
			continue
		}
		measured = append(measured, arm.Times)
		t.Heads = append(t.Heads, timesHead{arm.Name, v.styles[i].Shade.Variable})
		for family, seconds := range arm.Times.Families {
			longest[family] = max(longest[family], seconds)
		}
	}
	if len(measured) == 0 {
		return nil
	}
	most := 0.0
	for _, family := range byWork(longest) {
		most = max(most, longest[family])
	}
	for _, family := range byWork(longest) {
		r := timesRow{Family: family}
		for i, m := range measured {
			r.Cells = append(r.Cells, timesCell{t.Heads[i].Shade, milliseconds(m.Families[family]), fmt.Sprintf("%.0f", barWidth*m.Families[family]/max(most, 1e-12))})
		}
		t.Rows = append(t.Rows, r)
	}
	total := timesRow{Family: "step"}
	for i, m := range measured {
		total.Cells = append(total.Cells, timesCell{t.Heads[i].Shade, milliseconds(m.Seconds), "0"})
	}
	t.Rows = append(t.Rows, total)
	return &t
}

// byWork sorts families by their seconds, longest first. It groups the formats of one product.
func byWork(seconds map[string]float64) []string {
	work := func(family string) string {
		for _, format := range []string{"fp32 ", "bf16 ", "mx "} {
			family = strings.TrimPrefix(family, format)
		}
		return family
	}
	longest := map[string]float64{}
	for family, s := range seconds {
		longest[work(family)] = max(longest[work(family)], s)
	}
	return slices.SortedFunc(maps.Keys(seconds), func(a, b string) int {
		return cmp.Or(cmp.Compare(longest[work(b)], longest[work(a)]), cmp.Compare(work(a), work(b)), cmp.Compare(a, b))
	})
}

func milliseconds(seconds float64) string {
	if seconds <= 0 {
		return figure.Missing
	}
	return figure.Plain(1e3*seconds, 1)
}
