package cputest

import (
	"maps"

	"github.com/klauspost/cpuid/v2"

	"spmoe/tensor/cpu"
)

// A CPU is a model of CPU. It has the features that tiers need or want, and the tier that the model
// uses.
type CPU struct {
	Name     string
	Features cpu.Features
	Tier     cpu.Tier
}

// CPUs lists models with different features. AVX-512 on Alder Lake is turned off.
var CPUs = []CPU{
	{"Sandy Bridge", cpu.Features{}, cpu.Generic},
	{"Haswell", haswell, cpu.AVX2},
	{"Alder Lake", has(haswell, cpuid.GFNI), cpu.AVX2},
	{"Skylake-X", skylake, cpu.AVX2},
	{"Cannon Lake", has(skylake, cpuid.AVX512VBMI), cpu.AVX2},
	{"Cooper Lake", has(skylake, cpuid.AVX512BF16), cpu.AVX2},
	{"Ice Lake", iceLake, cpu.AVX512},
	{"Sapphire Rapids without permission for tiles", sapphireRapids, cpu.AVX512},
	{"Sapphire Rapids", has(sapphireRapids, cpu.TileRegisters), cpu.AMX},
	{"Granite Rapids", has(sapphireRapids, cpuid.AMXFP16, cpu.TileRegisters), cpu.AMX},
	{"Zen 3", haswell, cpu.AVX2},
	{"Zen 5", zen5, cpu.AVX512BF16},
	{"Apple M1", withNEON, cpu.NEON},
	{"Graviton4", has(withNEON, cpuid.BF16), cpu.NEONBF16},
}

var (
	haswell        = has(cpu.Features{}, cpuid.AVX2, cpuid.FMA3, cpuid.F16C)
	skylake        = has(haswell, cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL)
	iceLake        = has(skylake, cpuid.AVX512VBMI, cpuid.GFNI)
	sapphireRapids = has(iceLake, cpuid.AVX512BF16, cpuid.AMXTILE, cpuid.AMXBF16)
	zen5           = has(iceLake, cpuid.AVX512BF16, cpu.FastBF16)
	withNEON       = has(cpu.Features{}, cpuid.ASIMD)
)

// has returns the features of base plus more.
func has(base cpu.Features, more ...cpuid.FeatureID) cpu.Features {
	all := maps.Clone(base)
	for _, f := range more {
		all[f] = true
	}
	return all
}
