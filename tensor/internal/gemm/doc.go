// Package gemm multiplies matrices on one core. Operands are BF16 or FP32 of any layout, or
// block-scaled 8-bit codes. Sums are FP32.
//
// # Algorithms
//
// Files are named by algorithm. A file without a suffix holds the loops, which are the same on
// every architecture. Files with _amd64 and _arm64 hold kernels in assembly, which _asm generates.
// kernels_amd64.go and kernels_arm64.go list the kernels of each tier. recipe.go chooses among
// them.
//
//	panels      Pack blocks of both; a microkernel multiplies them tile by tile. Any shape and
//	            layout.
//	direct      Few rows of a, AVX2: read b in place. Lanes are columns; a b that is contiguous
//	            along k is transposed in registers.
//	transposed  Few rows of a, k contiguous in b, AMX only: cᵀ = b·aᵀ, so that tiles read b in
//	            place.
//	decoded     Decode 128 rows in plain Go and multiply the copies. Any element, scale, layout.
//	portable    Panels of 4 rows in plain Go: the generic tier (generic.go).
//
// Files codes_* decode block-scaled operands for panels, direct and transposed products. Files
// spans* cut the sum over k into spans and add these up as a tree.
//
// # Which algorithm a product takes
//
// The first line that fits applies. Its terms:
//
//   - Rows are those of a, columns those of c.
//   - "along" means that b is contiguous along k, as weights are in forward products. "across"
//     means that its columns are adjacent.
//   - "codes" are E4M3 or E5M2, in one operand or both. They are decoded to BF16. Scales have the
//     same layout as their codes.
//   - "plain" means that the product is not added to c and has no spans.
//
// The last column names the order of summation, which is defined below. On each tier it is the same
// for any number of rows, so a row of the result does not depend on the others.
//
//	operands     tier                  rows, layout, columns             algorithm         order
//	FP32         all but generic       any                               panels            chain
//	BF16, codes  AMX                   <= 32, along, plain               transposed        tiles
//	             AMX                   any                               panels            tiles
//	             AVX2, AVX-512 without <= 16, along, >= 16, k%8 = 0      direct            chain
//	             BF16                  <= 6, across, >= 32, BF16         direct            chain
//	             NEON with BF16        any                               panels            odd pairs
//	             all but generic       any                               panels            chain
//	any          generic               any                               portable          chain
//
// Exceptions:
//
//   - Elements without a decoder (INT8, E2M3, E3M2, E2M1) use decoded copies on every tier.
//   - On Intel CPUs with AVX-512 BF16 but without AMX, products are those without BF16. FP32
//     multiply-adds are twice as fast there as VDPBF16PS, with the same bits.
//   - Codes that do not decode exactly to normal BF16 numbers (codes_exact.go) use decoded copies.
//   - Columns past the last whole group of a direct product use panels. So do products with spans.
//
// # Which path a mode takes
//
// A mode says what becomes of the sums. The columns name the algorithms that take it. Panels take
// every mode, and drive in panels_blocked.go chooses the function.
//
//	mode                           direct        transposed  panels, by
//	c of BF16                      yes           yes         rounded
//	c of FP32                      yes           yes         chain
//	c += a·b                       yes           no          chain or spans
//	c is not read soon             yes           yes         stream, where tiles can
//	spans of k, summed as a tree   no            no          spans
//	times alpha                    yes           yes         spans or rounded, then mode.times
//	times the scales of runs       no            no          promoted, in spans or rounded
//	b of several products          until packed  no          Retained.panels
//
// Decoded copies are multiplied by the products of BF16 and FP32. The portable tier has one path,
// sumPortable.
//
// # Orders of summation
//
// The order in which an element is summed depends on the tier and on formats only. A few lines of
// plain Go define each order, and tests hold all tiers to them.
//
//	chain     One chain of fused multiply-adds along k. For BF16, the second of each pair (k, k+1)
//	          comes first, as in VDPBF16PS: chain in panels_order_test.go, for FP32 chainFP32
//	tiles     For every 32 elements one chain of the even ones and one of the odd ones. Their sum
//	          is added: tileChains in panels_order_test.go
//	odd pairs One chain along k. The products of each pair (k, k+1) are added, and their sum is added
//	          to the chain. Both additions round to odd, as BFMMLA does: oddPairs in
//	          panels_order_test.go
//	tree      With spans: a balanced binary tree of sums in an order above: treeSum in
//	          spans_test.go
//
// Blocking does not change the result. Spans do, by design. For BF16, all tiers except AMX and NEON
// with BF16 agree bit for bit as long as no operand, product or sum is subnormal. VDPBF16PS, AMX
// and BFMMLA read subnormal operands as zero and flush subnormal sums; the other instructions keep
// them. The tiers avx2 and neon take the same order for every product of BF16, FP32 and codes, so
// their bits are the same.
//
// # Measurements
//
// Measurements are in bench/results: kernels.txt and kernels-intel.txt compare panels with the peak
// of a core, and peers.txt compares with other libraries. log.md has these entries.
//
//	direct      "65. Few rows have the order of many"
//	transposed  "36. Read weights in place"
//	            "38. Decode, fetch and multiply few rows at the same time"
//	            "51. Go along k in chunks, 32 rows of weights at a time"
//	panels      "7. Read rows of a where they lie"
//	            "28. The microkernel does not wait for the lines that it writes"
//	codes       "20. Decode MX codes by AVX2 on the way into panels"
//	            "42. Decode normal codes by linear maps of their bits"
//
// For arm64, bench/results/arm64-ceiling.txt has what llvm-mca expects of the inner loops.
//
// # Another architecture
//
// Another architecture needs kernels_<arch>.go with its kernels, roundGroups, one recipe per
// tier, and the assembly. What microkernels, packers and decoders require is in
// panels_microkernel.go, fewrows_direct.go and codes_decode.go.
// asm_args.go has the structs that the assembly reads, by the names in go_asm.h.
// kernels_other.go is for architectures without assembly.
package gemm
