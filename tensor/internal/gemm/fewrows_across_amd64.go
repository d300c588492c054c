//go:build amd64 && !purego

package gemm

// The kernels for adjacent rows of b on amd64.

import "spmoe/tensor/format"

var (
	acrossForAVX512 = acrossByFormat{&acrossBF16AVX512, &acrossMXAVX512}
	acrossForAVX2   = acrossByFormat{&acrossBF16AVX2, &acrossMXAVX2}
	acrossForAMX    = acrossByFormat{&acrossBF16AMX, &acrossMXAMX}

	acrossBF16AVX512 = acrossKernels{elem: 2, run: 128, strip: 256 << 10, height: 128, kernels: []func(*across){nil, acrossBF16x1AVX512, acrossBF16x2AVX512, acrossBF16x3AVX512,
		acrossBF16x4AVX512, acrossBF16x5AVX512, acrossBF16x6AVX512, acrossBF16x7AVX512, acrossBF16x8AVX512, acrossBF16x9AVX512, acrossBF16x10AVX512, acrossBF16x11AVX512, acrossBF16x12AVX512}}
	acrossMXAVX512 = acrossKernels{tables: directTables, element: format.E4M3, elem: 1, run: 128, strip: 256 << 10, height: 64, kernels: []func(*across){nil, acrossMXx1AVX512, acrossMXx2AVX512, acrossMXx3AVX512, acrossMXx4AVX512,
		acrossMXx5AVX512, acrossMXx6AVX512, acrossMXx7AVX512, acrossMXx8AVX512}}
	acrossBF16AVX2 = acrossKernels{elem: 2, sharePrefetch: true, run: 128, strip: 128 << 10, height: 96, kernels: []func(*across){nil, acrossBF16x1AVX2,
		acrossBF16x2AVX2, acrossBF16x3AVX2, acrossBF16x4AVX2, acrossBF16x5AVX2, acrossBF16x6AVX2}}
	acrossMXAVX2 = acrossKernels{element: format.E4M3, elem: 1, run: 128, strip: 128 << 10, height: 96, panel: acrossE4M3AVX2, maxScale: mostScale,
		fused: []func(*columnPanel, *tile){nil, acrossE4M3x1AVX2, acrossE4M3x2AVX2, acrossE4M3x3AVX2, acrossE4M3x4AVX2}}
	acrossBF16AMX = acrossKernels{elem: 2, run: 512, strip: 256 << 10, height: 32, configure: (*tile).configureAcross, tiles: []func(*columnPanel, *tile){nil, acrossBF16Tiles1, acrossBF16Tiles2}}
	acrossMXAMX   = acrossKernels{element: format.E4M3, elem: 1, run: 512, strip: 256 << 10, height: 32, configure: (*tile).configureAcross, tiles: []func(*columnPanel, *tile){nil, acrossCodesTiles1, acrossCodesTiles2}, maxScale: 255}
)
