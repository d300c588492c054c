package main

import (
	"reflect"
	"testing"

	"spmoe/mx/internal/quant"
	"spmoe/tensor/asmgen"
)

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	if err := asmgen.Check("..", files()); err != nil {
		t.Error(err)
	}
}

// TestOffsets holds the generator's picture of the Go structs against them.
func TestOffsets(t *testing.T) {
	rule := map[string]int{"roundUp": ruleRoundUp, "shift": ruleShift, "mantissa": ruleMantissa, "emax": ruleEmax, "largest": ruleLargest,
		"bias": ruleBias, "limit": ruleLimit, "exact": ruleExact, "align": ruleAlign, "mask": ruleMask, "table": ruleTable}
	tile := map[string]int{"Work": tileWork, "Rule": tileRule, "X": tileX, "Stride": tileStride, "Rows": tileRows,
		"RowCodes": tileRowCodes, "RowStride": tileRowStride, "RowScales": tileRowScales, "RowScaleStep": tileRowScaleStep,
		"ColCodes": tileColCodes, "ColStride": tileColStride, "ColScales": tileColScales, "Ahead": tileAhead}
	grid := map[string]int{"reciprocal": gridReciprocal, "roundUp": gridRoundUp, "emax": gridEmax, "least": gridLeast, "largest": gridLargest,
		"smallest": gridSmallest, "step": gridStep, "shift": gridShift, "bias": gridBias, "sign": gridSign, "subtract": gridSubtract}
	decoder := map[string]int{"magnitude": decoderMagnitude, "sign": decoderSign, "infinity": decoderInfinity, "numbers": decoderNumbers,
		"bias": decoderBias, "mantissa": decoderMantissa, "signShift": decoderSignShift}
	for typ, offsets := range map[reflect.Type]map[string]int{
		reflect.TypeFor[quant.Rule](): rule, reflect.TypeFor[quant.Tile](): tile, reflect.TypeFor[quant.Grid](): grid,
		reflect.TypeFor[quant.Decoder](): decoder} {
		for name, want := range offsets {
			if f, ok := typ.FieldByName(name); !ok || int(f.Offset) != want {
				t.Errorf("%v.%s is at offset %d (exists: %v), the generator takes it to be at %d", typ, name, f.Offset, ok, want)
			}
		}
	}
	if size := reflect.TypeFor[quant.Work]().Size(); size != workSize {
		t.Errorf("quant.Work has %d bytes, the generator uses %d", size, workSize)
	}
}
