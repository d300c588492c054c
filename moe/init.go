package moe

import (
	"math"
	"math/bits"

	"spmoe/moe/internal/normal"
)

// Init describes the initial values of a parameter.
type Init struct {
	Kind  InitKind
	Value float64 // of Constant
	Std   float64 // of the normal distributions
	Cut   float64 // TruncNormal redraws values outside ±Cut
}

// InitKind is a distribution of initial values.
type InitKind uint8

// The distributions that the reference implementation uses.
const (
	Zeros InitKind = iota
	Constant
	Normal
	TruncNormal
)

// truncNormal cuts at ±2, the default of PyTorch's trunc_normal_.
func truncNormal(std float64) Init { return Init{Kind: TruncNormal, Std: std, Cut: 2} }

// linearStd is the standard deviation of plain linear layers.
const linearStd = 0.02

// outputInit is for layers that write to the residual stream: the deeper, the smaller.
func outputInit(layer int) Init { return truncNormal(linearStd / math.Sqrt(2*float64(layer+1))) }

// headInit is for the output projection.
func headInit(dim int) Init {
	std := 1 / math.Sqrt(float64(dim))
	return Init{Kind: TruncNormal, Std: std, Cut: 3 * std}
}

// fill sets dst to elements [offset, offset+len(dst)).
func (in Init) fill(dst []float32, key, offset uint64) {
	cut := in.Cut * (1 - 1e-9)
	if in.Kind == Normal {
		cut = math.Inf(1)
	}
	for len(dst) > 0 {
		n, unsure := min(len(dst), normal.Run), ^uint64(0)
		if normal.Fast && n == normal.Run && in.Kind >= Normal {
			unsure = normal.Draw((*[normal.Run]float32)(dst), key+offset*golden, in.Std, cut)
		}
		for ; unsure != 0; unsure &= unsure - 1 {
			if i := bits.TrailingZeros64(unsure); i < n {
				dst[i] = in.element(key, offset+uint64(i))
			}
		}
		dst, offset = dst[n:], offset+uint64(n)
	}
}

func (in Init) element(key, index uint64) float32 {
	switch in.Kind {
	case Constant:
		return float32(in.Value)
	case Normal, TruncNormal:
		counter := mix(key + index*golden)
		for {
			z := in.Std * gaussian(counter)
			if in.Kind == Normal || math.Abs(z) <= in.Cut {
				return float32(z)
			}
			counter = mix(counter + 1)
		}
	default:
		return 0
	}
}

// gaussian turns 64 random bits into a standard normal number (Box-Muller).
func gaussian(random uint64) float64 {
	u := (float64(random>>32) + 0.5) / (1 << 32)
	v := float64(random&0xffffffff) / (1 << 32)
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// golden is 2^64 over the golden ratio.
const golden = 0x9e3779b97f4a7c15

// mix is the finalizer of SplitMix64: a bijection in which every output bit depends on all input
// bits.
func mix(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
