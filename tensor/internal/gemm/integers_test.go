package gemm

// MXINT8. Whole blocks are integer products and are compared with the definition. Ragged ones are
// decoded and are compared with the portable product.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spmoe/tensor/format"
)

func TestInt8OfWholeBlocks(t *testing.T) {
	for i, sh := range []struct{ m, n, k int }{
		{1, 16, 32}, {2, 33, 64}, {3, 15, 96}, {5, 100, 160}, {12, 47, 2112}, {4, 2100, 288}, {13, 70, 544}, {31, 64, 1088}, {200, 40, 64},
	} {
		for l := range 16 {
			bit := func(j int) bool { return l>>j&1 == 1 }
			if sh.m*sh.n*sh.k > 200000 && (bit(0) != bit(1) || bit(2) != bit(3)) {
				continue
			}
			t.Run(fmt.Sprintf("%dx%dx%d,%d", sh.m, sh.n, sh.k, l), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(i), uint64(l)))
				a := newScaled(format.INT8, sh.m, sh.k, bit(0), bit(1), finite(r, format.INT8), near(r))
				b := newScaled(format.INT8, sh.n, sh.k, bit(2), bit(3), finite(r, format.INT8), near(r))
				special := r.IntN(sh.n)
				// Its column takes the fallback; the others are unchanged.
				*at[uint8](b.Scales, special, 0) = 5
				initial := results(r, sh.m, sh.n)
				want, wantOnTop := newMatrix[float32](sh.m, sh.n, false, guard), initial.clone()
				for i := range sh.m {
					for j := range sh.n {
						*at[float32](want.View, i, j) = blockSums(a.Scaled, b.Scaled, i, j, 0)
						*at[float32](wantOnTop.View, i, j) = blockSums(a.Scaled, b.Scaled, i, j, *at[float32](initial.View, i, j))
					}
				}
				eachTier(t, func(t *testing.T, ks *kernels) {
					if ks.peakInt8 == nil {
						t.Skip("this tier decodes")
					}
					var s Scratch
					s.poison()
					for _, fits := range []bool{false, true} {
						b, want, onTop := b.Scaled, want.View, wantOnTop.View
						got, gotOnTop, rounded := newMatrix[float32](sh.m, sh.n, false, guard), initial.clone(), newMatrix[uint16](sh.m, sh.n, false, 7)
						c, cOnTop, out, skipped := got.View, gotOnTop.View, rounded.View, special
						if fits { // the columns before the special one, alone
							if special == 0 {
								continue
							}
							b = b.rows(0, special)
							c, cOnTop, out = c.slice(4, 0, 0, sh.m, special), cOnTop.slice(4, 0, 0, sh.m, special), out.slice(2, 0, 0, sh.m, special)
							skipped = -1
						}
						ks.mx(&s, c, View{}, a.Scaled, b, mode{})
						ks.mx(&s, cOnTop, View{}, a.Scaled, b, mode{add: true})
						ks.mx(&s, View{}, out, a.Scaled, b, mode{})
						for i := range c.Rows {
							for j := range c.Cols {
								if j == skipped {
									continue
								}
								x, y := *at[float32](c, i, j), *at[float32](want, i, j)
								if z := *at[uint16](out, i, j); x != y || z != roundBF16(y) {
									t.Fatalf("element %d, %d is %g, as BF16 %#x, want %g and %#x", i, j, x, z, y, roundBF16(y))
								}
								if x, y := *at[float32](cOnTop, i, j), *at[float32](onTop, i, j); x != y {
									t.Fatalf("element %d, %d is %g on top of another, want %g", i, j, x, y)
								}
							}
						}
						got.elements(t) // also checks the guards
						gotOnTop.elements(t)
						rounded.elements(t)
					}
				})
			})
		}
	}
}

// The largest sums of a block are exact, with every scale that integers take.
func TestInt8ExtremeCodes(t *testing.T) {
	const m, n, k = 7, 35, 96
	for _, codes := range [][2]uint8{{0x80, 0x80}, {0x80, 0x7f}, {0x7f, 0x80}, {0x7f, 0x7f}, {0x81, 0x81}} {
		for _, scales := range [][2]uint8{{127, 127}, {40, 40}, {40, 220}, {220, 40}, {160, 100}, {58, 58}, {58, 59}, {77, 40}, {185, 185}, {185, 186}, {150, 220}} {
			for l := range 4 {
				t.Run(fmt.Sprint(codes, scales, l), func(t *testing.T) {
					same := func(x uint8) func() uint8 { return func() uint8 { return x } }
					a := newScaled(format.INT8, m, k, l&1 == 1, l&1 == 1, same(codes[0]), same(scales[0]))
					b := newScaled(format.INT8, n, k, l&2 == 2, l&2 == 2, same(codes[1]), same(scales[1]))
					want := blockSums(a.Scaled, b.Scaled, 0, 0, 0)
					eachTier(t, func(t *testing.T, ks *kernels) {
						if ks.peakInt8 == nil {
							t.Skip("this tier decodes")
						}
						var s Scratch
						c := newMatrix[float32](m, n, false, guard)
						ks.mx(&s, c.View, View{}, a.Scaled, b.Scaled, mode{})
						for i, x := range c.elements(t) {
							if x != want {
								t.Fatalf("element %d, %d is %g, want %g", i/n, i%n, x, want)
							}
						}
					})
				})
			}
		}
	}
}

// Scales of any size have the bits of the definition, down to the last bit of a subnormal number
// and up to the largest origin of a block's integer sum.
func TestInt8ScalesInExponents(t *testing.T) {
	for _, sh := range []struct{ m, n, k int }{{13, 40, 64}, {20, 33, 544}, {200, 70, 2144}} {
		for l := range 4 {
			t.Run(fmt.Sprintf("%v,%d", sh, l), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(sh.k), uint64(l)))
				scale := func() uint8 { return uint8(59 + r.IntN(126)) }
				a := newScaled(format.INT8, sh.m, sh.k, l&1 == 1, l&1 == 1, finite(r, format.INT8), scale)
				b := newScaled(format.INT8, sh.n, sh.k, l&2 == 2, l&2 == 2, finite(r, format.INT8), scale)
				*at[uint8](a.Scales, sh.m-1, 0), *at[uint8](b.Scales, 0, 0) = 58, 59
				*at[uint8](a.Scales, 0, 1), *at[uint8](b.Scales, sh.n-1, 1) = 185, 185
				eachTier(t, func(t *testing.T, ks *kernels) {
					if ks.peakInt8 == nil {
						t.Skip("this tier decodes")
					}
					var s Scratch
					c := newMatrix[float32](sh.m, sh.n, false, guard)
					ks.mx(&s, c.View, View{}, a.Scaled, b.Scaled, mode{})
					for i, x := range c.elements(t) {
						if want := blockSums(a.Scaled, b.Scaled, i/sh.n, i%sh.n, 0); x != want {
							t.Fatalf("element %d, %d is %g, want %g", i/sh.n, i%sh.n, x, want)
						}
					}
				})
			})
		}
	}
}

// The origin 1.5·2^(23+e) is finite and normal for the scales that exponentsFit, and for no others.
func TestExponentsFit(t *testing.T) {
	for sum := range 2 * 255 {
		origin := math.Ldexp(1.5, 23+sum-2*127-12)
		normal := origin >= 0x1p-126 && origin <= math.MaxFloat32
		half := scaleRange{sum / 2, sum / 2}
		if rest := sum - sum/2; exponentsFit(half, scaleRange{rest, rest}) != normal {
			t.Errorf("scales with the sum %d: fit %v, want %v", sum, !normal, normal)
		}
	}
}

// Sums that overflow or are subnormal are rounded to BF16 as in plain Go.
func TestInt8RoundsExtremeSums(t *testing.T) {
	for _, scales := range []uint8{52, 56, 60, 64, 68, 190, 194, 198, 220} {
		for _, m := range []int{3, 20} {
			t.Run(fmt.Sprintf("%d,%d", scales, m), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(scales), 1))
				same := func() uint8 { return scales + uint8(r.IntN(8))*uint8(r.IntN(2)) }
				if scales == 220 {
					same = func() uint8 { return scales }
				}
				a := newScaled(format.INT8, m, 64, false, false, finite(r, format.INT8), same)
				b := newScaled(format.INT8, 40, 64, false, false, finite(r, format.INT8), same)
				eachTier(t, func(t *testing.T, ks *kernels) {
					if ks.peakInt8 == nil {
						t.Skip("this tier decodes")
					}
					var s Scratch
					sums, rounded := newMatrix[float32](m, 40, false, guard), newMatrix[uint16](m, 40, false, 7)
					ks.mx(&s, sums.View, View{}, a.Scaled, b.Scaled, mode{})
					ks.mx(&s, View{}, rounded.View, a.Scaled, b.Scaled, mode{})
					bits := rounded.elements(t)
					for i, x := range sums.elements(t) {
						if bits[i] != roundBF16(x) {
							t.Fatalf("element %d, %d is %g but %#x in BF16, want %#x", i/40, i%40, x, bits[i], roundBF16(x))
						}
					}
				})
			})
		}
	}
}

// A block of zeros is zero for every scale except NaN.
func TestInt8ZeroBlocks(t *testing.T) {
	for _, sh := range []struct{ m, n, k int }{{2, 20, 64}, {40, 20, 64}, {40, 20, 63}} {
		for l := range 4 {
			t.Run(fmt.Sprintf("%v,%d", sh, l), func(t *testing.T) {
				r := rand.New(rand.NewPCG(3, uint64(l)))
				a := newScaled(format.INT8, sh.m, sh.k, l&1 == 1, l&1 == 1, finite(r, format.INT8), near(r))
				b := newScaled(format.INT8, sh.n, sh.k, l&1 == 1, l&1 == 1, finite(r, format.INT8), near(r))
				zeros := a
				if l&2 == 2 {
					zeros = b
				}
				for k := range format.MXBlock {
					*at[uint8](zeros.Codes, 1, k) = 0
				}
				eachTier(t, func(t *testing.T, ks *kernels) {
					var s Scratch
					want, got := newMatrix[float32](sh.m, sh.n, false, guard), newMatrix[float32](sh.m, sh.n, false, guard)
					*at[uint8](zeros.Scales, 1, 0) = 127
					ks.mx(&s, want.View, View{}, a.Scaled, b.Scaled, mode{})
					for scale := range 255 {
						*at[uint8](zeros.Scales, 1, 0) = uint8(scale)
						ks.mx(&s, got.View, View{}, a.Scaled, b.Scaled, mode{})
						checkSame(t, got.elements(t), want.elements(t))
					}
				})
			})
		}
	}
}

// Operands that are not both whole blocks of MXINT8 have the bits of the portable product, for all
// layouts.
func TestDecodedInt8EqualsPlain(t *testing.T) {
	pairs := [][2]*format.Element{{format.INT8, format.INT8}, {format.INT8, format.E4M3}, {format.E5M2, format.INT8}}
	for i, sh := range []struct{ m, n, k int }{
		{1, 20, 33}, {5, 40, 95}, {12, 17, 300}, {13, 70, 1}, {25, 33, 31}, {70, 200, 64}, {65, 66, 257}, {130, 40, 601}, {20, 100, 1088},
	} {
		for l := range 16 {
			bit := func(j int) bool { return l>>j&1 == 1 }
			for _, f := range pairs {
				size := sh.m * sh.n * sh.k
				if f[0] == f[1] && sh.k%format.MXBlock == 0 || size > 50000 && (bit(0) != bit(1) || bit(2) != bit(3)) || shortened(size, 25000) {
					continue
				}
				t.Run(fmt.Sprintf("%dx%dx%d,%v,%v,%d", sh.m, sh.n, sh.k, f[0], f[1], l), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(i), uint64(l)))
					a := newScaled(f[0], sh.m, sh.k, bit(0), bit(1), finite(r, f[0]), near(r))
					b := newScaled(f[1], sh.n, sh.k, bit(2), bit(3), finite(r, f[1]), near(r))
					if l%3 == 0 && !shortened(size, 2000) { // then each element is a product
						*at[uint8](a.Scales, sh.m/2, 0) = 2
					}
					initial := results(r, sh.m, sh.n)
					eachTier(t, func(t *testing.T, ks *kernels) {
						if ks.peakInt8 == nil {
							t.Skip("this tier has the plain way only")
						}
						var s, plain Scratch
						s.poison()
						for _, accumulate := range []bool{false, true} {
							want, got := initial.clone(), initial.clone()
							ks.fallback(&plain)(want.View, View{}, a.Scaled, b.Scaled, mode{add: accumulate})
							ks.mx(&s, got.View, View{}, a.Scaled, b.Scaled, mode{add: accumulate})
							checkSame(t, got.elements(t), want.elements(t))
						}
						want, got := newMatrix[uint16](sh.m, sh.n, false, 7), newMatrix[uint16](sh.m, sh.n, false, 7)
						ks.fallback(&plain)(View{}, want.View, a.Scaled, b.Scaled, mode{})
						ks.mx(&s, View{}, got.View, a.Scaled, b.Scaled, mode{})
						checkSame(t, got.elements(t), want.elements(t))
					})
				})
			}
		}
	}
}

// sumsAreNormal holds for the scales with which the least product and the largest sum of a block
// are normal numbers, and for no others.
func TestSumsAreNormal(t *testing.T) {
	for sum := range 2 * 255 {
		scale := math.Ldexp(1, sum-2*127)
		normal := scale*0x1p-12 >= 0x1p-126 && scale*32*2*2 <= math.MaxFloat32
		half := scaleRange{sum / 2, sum / 2}
		if rest := sum - sum/2; sumsAreNormal(half, scaleRange{rest, rest}) != normal {
			t.Errorf("scales with the sum %d: normal %v, want %v", sum, !normal, normal)
		}
	}
}
