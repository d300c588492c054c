package golden

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

const muonReference = "testdata/muon.safetensors"

func TestCheckMuon(t *testing.T) {
	lines, err := CheckMX(muonReference)
	if err != nil || len(lines) != 5 {
		t.Fatalf("%d lines (%v), want 5", len(lines), err)
	}
	for _, l := range lines {
		if !l.OK() || !l.Compared() {
			t.Errorf("%s: %s is %.3g, bound %.3g; %s", l.Name, l.Rule, l.Error, l.Bound, l.Note)
		}
	}
}

// A reference that differs by more than a bound is a miss, and one of another shape an error.
func TestCheckMuonMisses(t *testing.T) {
	scaled := func(name string, by float32) string {
		return rewritten(t, muonReference, func(all []safetensors.Tensor) []safetensors.Tensor {
			for _, x := range all {
				if x.Name == name {
					for i := 0; i < len(x.Data); i += 4 {
						v := math.Float32frombits(binary.LittleEndian.Uint32(x.Data[i:]))
						binary.LittleEndian.PutUint32(x.Data[i:], math.Float32bits(v*by))
					}
				}
			}
			return all
		})
	}
	for name, by := range map[string]float32{"original_p0_5": 1.02, "match_rms_adamw_g1_2": -1, "match_rms_adamw_p0_0": 1.02} {
		lines, err := CheckMX(scaled(name, by))
		misses := 0
		for _, l := range lines {
			if !l.OK() {
				misses++
			}
		}
		if err != nil || misses != 1 {
			t.Errorf("%s times %g: %d misses (%v), want 1", name, by, misses, err)
		}
	}
	short := rewritten(t, muonReference, func(all []safetensors.Tensor) []safetensors.Tensor {
		for i := range all {
			if all[i].Name == "original_g1_3" {
				all[i].Shape = []int{64, 96}
			}
		}
		return all
	})
	if _, err := CheckMX(short); err == nil || !strings.Contains(err.Error(), "original_g1_3 is F32 [64 96]: F32 [96 64] is expected") {
		t.Errorf("a gradient of another shape: %v", err)
	}
}
