package tiles

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// rounded returns x·y + z in FP32 from the definition: exact, then rounded to 24 bits at any
// exponent, then flushed or infinite.
func rounded(x, y, z float32) float32 {
	special := float64(x)*float64(y) + float64(z)
	if special == 0 || special-special != 0 { // zeros have a sign; NaN and infinite
		return float32(special)
	}
	exact := new(big.Float).SetPrec(1000).SetFloat64(float64(x) * float64(y))
	exact.Add(exact, big.NewFloat(float64(z)))
	short, _ := new(big.Float).SetPrec(24).SetMode(big.ToNearestEven).Set(exact).Float64()
	if math.Abs(short) < 0x1p-126 {
		return float32(math.Copysign(0, short))
	}
	return float32(short)
}

// number returns a BF16 number, as FP32, near 2^exponent.
func number(r *rand.Rand, exponent int) float32 {
	x := math.Ldexp(1+float64(r.IntN(128))/128, exponent+r.IntN(5)-2)
	return float32(math.Copysign(x, r.Float64()-0.5))
}

// A multiply-add rounds once: for sums and products of all sizes, on and near ties, around the
// smallest number, beyond the largest, and for special values.
func TestRoundedSum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	check := func(x, y, z float32) {
		t.Helper()
		got, want := roundedSum(z, float64(x)*float64(y)), rounded(x, y, z)
		if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
			t.Fatalf("%g·%g + %g is %g (%#x), want %g (%#x)", x, y, z, got, math.Float32bits(got), want, math.Float32bits(want))
		}
	}
	for range 200000 {
		a, b := r.IntN(250)-125, r.IntN(250)-125
		x, y := number(r, max(a, -123)), number(r, max(b, -123))
		z := number(r, max(min(a+b, 122), -123)) // of the product's size
		check(x, y, z)
		// A sum with all 24 bits, of a size at which the product's last bits decide.
		z = math.Float32frombits(math.Float32bits(z)&0xff800000 | uint32(r.IntN(1<<23)))
		check(x, y, z*float32(math.Ldexp(1, min(r.IntN(40)-8, 0))))
		check(x, y, -x*y)
	}
	one, tie := float32(1), float32(0x1p-24)
	check(tie, one, 1)
	check(tie, 1.0078125, 1)
	check(-tie, one, 1)
	check(0x1p-100, 0x1p-100, 1+0x1p-23) // far below a tie
	check(0x1p-126, 0.9921875, 0)        // flushed
	check(0x1p-126, 0.9921875, 0x1p-149*0x1p23)
	for _, y := range []float32{1, 1.5, 2, 4} { // the first two round up to the smallest number
		check(-0x1p-76, y*0x1p-76, 0x1p-126)
	}
	check(-0x1p-76, 3*0x1p-76, 0x1p-126)
	check(math.MaxFloat32, 1, math.MaxFloat32)
	check(0x1p127, 0x1p127, -math.MaxFloat32)
	inf, zero := float32(math.Inf(1)), float32(0)
	for _, x := range []float32{inf, -inf, zero, -zero, one, float32(math.NaN())} {
		for _, y := range []float32{inf, zero, one} {
			for _, z := range []float32{inf, -inf, zero, float32(math.Copysign(0, -1)), one} {
				check(x, y, z)
			}
		}
	}
}

// A product of tiles has the bits of the two chains in the definition, for any size of
// tiles and numbers.
func TestDotBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, size := range []struct{ m, n, pairs int }{{16, 16, 16}, {1, 1, 1}, {3, 16, 16}, {16, 5, 7}, {2, 16, 3}} {
		for _, exponents := range [][2]int{{0, 0}, {-60, -60}, {-64, -60}, {63, 62}, {120, 20}, {-128, 100}, {90, -127}, {-120, -128}} {
			t.Run(fmt.Sprint(size, exponents), func(t *testing.T) {
				u := configured(t, [2]int{size.m, 4 * size.n}, [2]int{size.m, 4 * size.pairs}, [2]int{size.pairs, 4 * size.n})
				sum, a, b := &u.tiles[0], &u.tiles[1], &u.tiles[2]
				fillBF16(a, func() float32 { return number(r, exponents[0]) })
				fillBF16(b, func() float32 { return number(r, exponents[1]) * float32(r.IntN(10)) })
				fillBF16(sum, func() float32 { return number(r, max(min(exponents[0]+exponents[1], 120), -128)) }) // two are an FP32 number
				want := *sum
				for i := range size.m {
					for j := range size.n {
						var chains [2]float32
						for k := range 2 * size.pairs {
							chains[k%2] = rounded(bf16(a, i, k), bf16(b, k/2, 2*j+k%2), chains[k%2])
						}
						word := want.data[i][4*j:]
						old := flushed(math.Float32frombits(binary.LittleEndian.Uint32(word)))
						binary.LittleEndian.PutUint32(word, math.Float32bits(rounded(1, old, rounded(1, chains[0], chains[1]))))
					}
				}
				if err := u.Execute(Instruction{Op: DotBF16, Tile: 0, A: 1, B: 2}, nil, nil); err != nil {
					t.Fatal(err)
				}
				if *sum != want {
					t.Errorf("the sums are %x, want %x", sum.data, want.data)
				}
			})
		}
	}
}

func fillBF16(t *tile, value func() float32) {
	for i := range t.rows {
		for j := range t.rowBytes / 2 {
			binary.LittleEndian.PutUint16(t.data[i][2*j:], uint16(math.Float32bits(value())>>16))
		}
	}
}

// bf16 returns element j of row i. Subnormals are zero.
func bf16(t *tile, i, j int) float32 {
	return flushed(math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.data[i][2*j:])) << 16))
}

// Bytes are signed and sums wrap around.
func TestDotInt8(t *testing.T) {
	const m, n, quads = 3, 2, 4
	u := configured(t, [2]int{m, 4 * n}, [2]int{m, 4 * quads}, [2]int{quads, 4 * n})
	sum, a, b := &u.tiles[0], &u.tiles[1], &u.tiles[2]
	r := rand.New(rand.NewPCG(5, 6))
	for _, t := range []*tile{sum, a, b} {
		for i := range t.rows {
			for j := range t.rowBytes {
				t.data[i][j] = byte(r.Uint32())
			}
		}
	}
	binary.LittleEndian.PutUint32(sum.data[0][:], math.MaxInt32)
	for k := range 4 * quads { // 16·128·128 on top
		a.data[0][k], b.data[k/4][k%4] = 0x80, 0x80
	}
	want := *sum
	for i := range m {
		for j := range n {
			total := int64(int32(binary.LittleEndian.Uint32(want.data[i][4*j:])))
			for k := range 4 * quads {
				total += int64(int8(a.data[i][k])) * int64(int8(b.data[k/4][4*j+k%4]))
			}
			binary.LittleEndian.PutUint32(want.data[i][4*j:], uint32(total))
		}
	}
	if err := u.Execute(Instruction{Op: DotInt8, Tile: 0, A: 1, B: 2}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if *sum != want {
		t.Errorf("the sums are %x, want %x", sum.data, want.data)
	}
}
