//go:build amd64 && !purego

package gemm

// The kernels of direct products and what they want of their operands.

import (
	"sync"
	"unsafe"
)

// directFamily is the kernels by the rows of a and how many rows of b each takes at once, which must be what the generator says.
type directFamily struct {
	kernels []func(*direct)
	columns func(rows int) int

	elem int // bytes of an element of b
	unit int // elements of a row that make a step
	// run is how many elements of a row are multiplied at a time: a's part of them leaves room for the rows of b in the first level of cache.
	run func(height int) int

	vector int // bytes that 32 elements of a take
	put    putVectors

	whole   bool // kernels take whole steps of BF16: rests of rows are copied, codes decoded to where there is room behind them
	factors bool // kernels want factors of FP32 in place of scales
}

// putVectors puts steps times 32 BF16 of a row of a at dst, step bytes apart.
type putVectors func(dst, src unsafe.Pointer, steps, step int)

var (
	directBF16AVX512 = directFamily{
		kernels: []func(*direct){nil, directBF16x1AVX512, directBF16x2AVX512, directBF16x3AVX512, directBF16x4AVX512,
			directBF16x5AVX512, directBF16x6AVX512, directBF16x7AVX512, directBF16x8AVX512},
		columns: func(rows int) int { return min(8, 31/(rows+1)) },
		elem:    2, unit: 32,
		run:    func(height int) int { return 8192 / height / 512 * 512 },
		vector: 64, put: copyVectors,
	}
	directMXAVX512 = directFamily{
		kernels: []func(*direct){nil, directMXx1AVX512, directMXx2AVX512, directMXx3AVX512, directMXx4AVX512,
			directMXx5AVX512, directMXx6AVX512, directMXx7AVX512, directMXx8AVX512},
		columns: func(rows int) int { return min(6, 28/(rows+1)) },
		elem:    1, unit: 64,
		run:    func(height int) int { return 1 << 17 / height / 512 * 512 }, // next to decoding, a may come from the second level
		vector: 64, put: copyVectors,
	}
	directAVX2 = directFamily{
		kernels: []func(*direct){nil, directBF16x1AVX2, directBF16x2AVX2, directBF16x3AVX2, directBF16x4AVX2},
		columns: func(rows int) int { return [...]int{1: 8, 2: 6, 3: 4, 4: 3}[rows] },
		elem:    2, unit: 32,
		run:    func(int) int { return 1024 },
		vector: 128, put: pairsAVX2,
		whole: true,
	}
	directMXAVX2 = directFamily{
		kernels: []func(*direct){nil, directMXx1AVX2, directMXx2AVX2, directMXx3AVX2, directMXx4AVX2,
			directMXx5AVX2, directMXx6AVX2, directMXx7AVX2, directMXx8AVX2},
		columns: func(rows int) int { return [...]int{1: 6, 2: 4, 3: 3, 4: 2, 5: 2, 6: 2, 7: 1, 8: 1}[rows] },
		elem:    1, unit: 32,
		run:    func(int) int { return 512 },
		vector: 128, put: pairsAVX2,
		factors: true,
	}
)

// directAVX512Of is the kernels of AVX-512 for a b of elements or codes.
func directAVX512Of(b operand) *directFamily {
	if b.lookup != nil {
		return &directMXAVX512
	}
	return &directBF16AVX512
}

// directAVX2Of is the kernels of AVX2: those for codes take whole blocks of E4M3.
func directAVX2Of(b operand) *directFamily {
	if b.lookup != nil && b.lookup.format == E4M3 && b.Cols%blockLength == 0 {
		return &directMXAVX2
	}
	return &directAVX2
}

// copyVectors is a putVectors for kernels that take BF16.
func copyVectors(dst, src unsafe.Pointer, steps, step int) {
	for i := range steps {
		*(*[64]byte)(unsafe.Add(dst, i*step)) = *(*[64]byte)(unsafe.Add(src, 64*i))
	}
}

var directTables = [...]func() *directCodes{
	E4M3: sync.OnceValue(func() *directCodes { return newDirectCodes(decodersAVX512[E4M3](), 237) }), // all but 0, subnormal numbers and NaN
	E5M2: sync.OnceValue(func() *directCodes { return newDirectCodes(decodersAVX512[E5M2](), 0) }),   // none
}

// newDirectCodes makes tables that are looked up for codes but those whose double less 16 is less than rare.
func newDirectCodes(l *lookup, rare uint8) *directCodes {
	c := &directCodes{codeTables: l.codeTables, top: l.top + l.bias - words(7<<7)}
	for i := range c.rare {
		c.rare[i] = rare
	}
	return c
}
