//go:build amd64 && !purego

package gemm

// The kernels of direct products on amd64. columns must match the generator.

import (
	"sync"

	"spmoe/tensor/format"
)

var (
	directBF16AVX512 = directKernels{
		kernels: []func(*direct){nil, directBF16x1AVX512, directBF16x2AVX512, directBF16x3AVX512, directBF16x4AVX512,
			directBF16x5AVX512, directBF16x6AVX512, directBF16x7AVX512, directBF16x8AVX512},
		columns: func(rows int) int { return min(8, 31/(rows+1)) },
		elem:    2, unit: 32, strided: true,
		run:    func(height int) int { return 8192 / height / 512 * 512 },
		vector: 64, put: copyVectors,
	}
	directMXAVX512 = directKernels{
		tables: directTables,
		kernels: []func(*direct){nil, directMXx1AVX512, directMXx2AVX512, directMXx3AVX512, directMXx4AVX512,
			directMXx5AVX512, directMXx6AVX512, directMXx7AVX512, directMXx8AVX512},
		columns: func(rows int) int { return min(6, 28/(rows+1)) },
		elem:    1, unit: 64,
		// a may come from L2 here, since decoding takes longer.
		run:    func(height int) int { return 1 << 17 / height / 512 * 512 },
		vector: 64, put: copyVectors,
	}
	directAVX2 = directKernels{
		kernels: []func(*direct){nil, directBF16x1AVX2, directBF16x2AVX2, directBF16x3AVX2, directBF16x4AVX2},
		columns: func(rows int) int { return [...]int{1: 8, 2: 6, 3: 4, 4: 3}[rows] },
		elem:    2, unit: 32,
		run:    func(int) int { return 1024 },
		vector: 128, put: pairsAVX2,
		whole: true,
	}
	directMXAVX2 = directKernels{
		kernels: []func(*direct){nil, directMXx1AVX2, directMXx2AVX2, directMXx3AVX2, directMXx4AVX2,
			directMXx5AVX2, directMXx6AVX2, directMXx7AVX2, directMXx8AVX2},
		columns: func(rows int) int { return [...]int{1: 6, 2: 4, 3: 3, 4: 2, 5: 2, 6: 2, 7: 1, 8: 1}[rows] },
		elem:    1, unit: 32,
		run:    func(int) int { return 512 },
		vector: 128, put: pairsAVX2,
		factors: (*Scratch).factors, mostScale: mostScale, wider: &directAVX2,
	}
)

// directAVX512Of returns the AVX-512 kernels for a b of plain elements or codes.
func directAVX512Of(b operand) *directKernels {
	if b.lookup != nil {
		return &directMXAVX512
	}
	return &directBF16AVX512
}

// directAVX2Of returns the AVX2 kernels. Those for codes take whole blocks of E4M3.
func directAVX2Of(b operand) *directKernels {
	if b.lookup != nil && b.lookup.element == format.E4M3 && b.Cols%format.MXBlock == 0 {
		return &directMXAVX2
	}
	return &directAVX2
}

var directTables = map[*format.Element]func() *directCodes{
	// Looked up: 0, subnormals and NaN.
	format.E4M3: sync.OnceValue(func() *directCodes { return newDirectCodes(decodersAVX512[format.E4M3](), 237) }),
	// Looked up: all codes.
	format.E5M2: sync.OnceValue(func() *directCodes { return newDirectCodes(decodersAVX512[format.E5M2](), 0) }),
}
