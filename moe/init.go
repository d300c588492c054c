package moe

import "math"

// Init describes the initial values of a parameter.
type Init struct {
	Kind InitKind
	Std  float64 // of the normal distributions
	Cut  float64 // TruncNormal redraws values outside ±Cut
}

// InitKind is a distribution of initial values.
type InitKind uint8

// The distributions that the reference implementation uses.
const (
	Zeros InitKind = iota
	Ones
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

func (in Init) element(key, index uint64) float32 {
	switch in.Kind {
	case Ones:
		return 1
	case Normal, TruncNormal:
		counter := mix(key + index*0x9e3779b97f4a7c15)
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
func gaussian(bits uint64) float64 {
	u := (float64(bits>>32) + 0.5) / (1 << 32)
	v := float64(bits&0xffffffff) / (1 << 32)
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// mix is the finalizer of SplitMix64: a bijection in which every output bit depends on all input
// bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
