package mx

import (
	"testing"

	"spmoe/tensor/format"
)

func TestNames(t *testing.T) {
	for _, f := range Formats() {
		if got, err := ParseFormat(f.String()); got != f || err != nil {
			t.Errorf("%v is read as %v, %v", f, got, err)
		}
	}
	for _, m := range ScaleModes() {
		if got, err := ParseScaleMode(m.String()); got != m || err != nil {
			t.Errorf("%v is read as %v, %v", m, got, err)
		}
	}
	if _, err := ParseFormat("e4m4"); err == nil {
		t.Error("e4m4 is taken for a format")
	}
	if _, err := ParseScaleMode(""); err == nil {
		t.Error("the empty name is taken for a scale mode")
	}
}

// Formats without a reference. Those of 4 bits have one byte per code, so that matrices may have an
// odd number of columns.
var (
	wide4       = Format{Name: "wide4", Element: format.E2M1, Block: [2]int{1, 16}, Scale: ScaleE4M3, TensorScale: true}
	wide4Square = Format{Name: "wide4 8x8", Element: format.E2M1, Block: [2]int{8, 8}, Scale: ScaleE4M3, TensorScale: true}
	sixteen     = Format{Name: "sixteen", Element: format.E3M2, Block: [2]int{1, 16}, Scale: ScaleE4M3}
)
