package cpu

// The tiers, the features that each needs, and the rules by which a CPU uses them.

import (
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// A Tier is the name of a set of CPU features that kernels are written for. SPMOE_CPU takes these
// names. A tier has the same kernels on every CPU.
type Tier string

// The tiers, each with the CPUs that choose it.
const (
	Generic    Tier = "generic"    // plain Go
	AVX2       Tier = "avx2"       // Haswell, Skylake-X, Cascade Lake, Alder Lake, Zen to Zen 3
	AVX512     Tier = "avx512"     // Ice Lake, Sapphire Rapids without AMX: permutes and multiplies bytes
	AVX512BF16 Tier = "avx512bf16" // Zen 4, Zen 5: VDPBF16PS everywhere
	AMX        Tier = "amx"        // Sapphire Rapids, Granite Rapids: products on tile registers
	NEON       Tier = "neon"       // Cortex-A72, Graviton2, M1: BF16 by FP32 arithmetic, with the bits of avx2
	NEONBF16   Tier = "neon-bf16"  // Graviton3 and later, Grace, M2: BFMMLA, with other bits
)

// Properties that decide between tiers but are not in CPUID.
const (
	// FastBF16: VDPBF16PS beats FP32 multiply-adds. Intel's CPUs start one VDPBF16PS every two
	// cycles and two FP32 multiply-adds per cycle. FP32 therefore gives the same bits at twice the
	// speed.
	FastBF16 cpuid.FeatureID = -2 - iota
	// TileRegisters: the operating system lets this process use the tile registers of AMX.
	TileRegisters
)

// row is a line of the table of tiers.
type row struct {
	tier  Tier
	base  Tier              // includes the features of this tier
	needs []cpuid.FeatureID // what kernels cannot run without
	wants []cpuid.FeatureID // the tier is slow without these: then only SPMOE_CPU selects it
}

type features = []cpuid.FeatureID

// rows lists the tiers. A CPU uses the last tier that it can run and that is fast on it.
var rows = []row{
	{tier: Generic},
	{tier: AVX2, base: Generic, needs: features{cpuid.AVX2, cpuid.FMA3, cpuid.F16C}},
	{tier: AVX512, base: AVX2, needs: features{cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.AVX512VBMI, cpuid.GFNI}},
	{tier: AVX512BF16, base: AVX512, needs: features{cpuid.AVX512BF16}, wants: features{FastBF16}},
	{tier: AMX, base: AVX512, needs: features{cpuid.AVX512BF16, cpuid.AMXTILE, cpuid.AMXBF16, TileRegisters}},
	{tier: NEON, base: Generic, needs: features{cpuid.ASIMD}},
	{tier: NEONBF16, base: NEON, needs: features{cpuid.BF16}},
}

// All lists all tiers in order of preference, the best last.
func All() []Tier {
	var all []Tier
	for _, r := range rows {
		all = append(all, r.tier)
	}
	return all
}

// String returns the name that SPMOE_CPU takes.
func (t Tier) String() string { return string(t) }

// Base returns the tier whose features t also needs. It is empty for Generic.
func (t Tier) Base() Tier { return t.row().base }

// Needs lists the features that t needs beyond those of its base.
func (t Tier) Needs() []cpuid.FeatureID { return t.row().needs }

// Wants lists the features without which t runs, but slowly.
func (t Tier) Wants() []cpuid.FeatureID { return t.row().wants }

// row returns the tier's line of the table, or an empty line for an unknown name.
func (t Tier) row() row {
	for _, r := range rows {
		if r.tier == t {
			return r
		}
	}
	return row{}
}

// needs lists all features that t needs, with those of its base first.
func (t Tier) needs() []cpuid.FeatureID {
	r := t.row()
	if r.base == "" {
		return r.needs
	}
	return slices.Concat(r.base.needs(), r.needs)
}

// Includes reports whether t needs or wants everything that another tier needs or wants.
func (t Tier) Includes(other Tier) bool {
	has := Features{}
	for _, f := range slices.Concat(t.needs(), t.Wants()) {
		has[f] = true
	}
	return len(has.Missing(other)) == 0 && len(has.Slow(other)) == 0
}

// Features is a set of CPU features.
type Features map[cpuid.FeatureID]bool

// Missing lists the features that a tier needs and f does not have.
func (f Features) Missing(t Tier) []cpuid.FeatureID { return f.without(t.needs()) }

// Slow lists the features that a tier wants and f does not have.
func (f Features) Slow(t Tier) []cpuid.FeatureID { return f.without(t.Wants()) }

func (f Features) without(wanted []cpuid.FeatureID) []cpuid.FeatureID {
	return slices.DeleteFunc(slices.Clone(wanted), func(id cpuid.FeatureID) bool { return f[id] })
}

// Tiers lists the tiers that can run, in order of preference.
func (f Features) Tiers() []Tier {
	return slices.DeleteFunc(All(), func(t Tier) bool { return len(f.Missing(t)) > 0 })
}

// Best returns the most preferred tier that can run and is fast.
func (f Features) Best() Tier {
	tiers := slices.DeleteFunc(f.Tiers(), func(t Tier) bool { return len(f.Slow(t)) > 0 })
	return tiers[len(tiers)-1]
}

// featureName returns the name of a feature as package cpuid writes it.
func featureName(f cpuid.FeatureID) string {
	switch f {
	case FastBF16:
		return "fast VDPBF16PS"
	case TileRegisters:
		return "permission for tile registers"
	}
	return f.String()
}

// FeatureNames returns the names of features in one line.
func FeatureNames(ids []cpuid.FeatureID) string {
	var names []string
	for _, f := range ids {
		names = append(names, featureName(f))
	}
	return strings.Join(names, ", ")
}
