// Package gemm multiplies matrices on one core: BF16 or FP32 operands of any layout, or
// block-scaled 8-bit codes; FP32 accumulation.
//
// # Algorithms
//
// Files are named by algorithm. A file without a suffix holds the loops, which know no
// architecture. Kernels are assembly behind _amd64, which asm/ generates; kernels_amd64.go says
// which of them a tier has, and recipe.go chooses.
//
//	panels    Pack blocks of both; a microkernel multiplies them tile by tile. Any layout and rows.
//	direct    Few rows of a, k contiguous in both: read b once, in place, and add up along vectors.
//	across    Few rows of a, rows of b neighbours in memory: read b once, in place, in runs of k.
//	turned    Few rows of a, k contiguous in b: cᵀ = b·aᵀ, so that tiles read b in place. AMX only.
//	integers  MXINT8 in both: exact sums of blocks, of bytes (VPDPBUSD, TDPBSSD) or words (VPMADDWD).
//	decoded   Decode 128 rows in plain Go and multiply copies: any element, scale and layout.
//	portable  Panels of 4 rows in plain Go: the generic tier (generic.go).
//
// Files codes_* decode block-scaled operands on their way into panels, direct products and turned
// ones. Files spans* cut the sum over k into spans and add these up as a tree.
//
// # Which algorithm a product takes
//
// The first line that fits serves. Rows are those of a. "b along" means that neighbours in memory
// are neighbours along k, as in weights of forward products, "b across" that they are rows of b, as
// in gradients of data; scales lie as their codes do. Codes are E4M3, E5M2 or MXINT8 in one operand
// only; across takes E4M3 in b. plain means: not added to c, and without spans. For AVX-512 with
// BF16, few is rows <= max(12, min(k/16, 64)), where k is the length of a span if there are spans.
//
//	operands     tier                  rows, layout, columns             algorithm         order
//	FP32         all but generic       any                               panels            chain
//	BF16, codes  AMX                   <= 32, b across, >= 64, plain     across            tiles
//	             AMX                   <= 32, b along, plain             turned            tiles
//	             AMX                   any                               panels            tiles
//	             AVX-512 with BF16     few, both along                   direct            sixteen
//	             AVX-512 with BF16     <= 128, b across, >= 32, plain    across (BF16)     chain
//	             AVX-512 with BF16     <= 64, b across, >= 32, plain     across (codes)    chain
//	             AVX-512 without BF16  <= 8, both along                  direct of AVX2    sixteen
//	             AVX2                  <= 16, both along                 direct            sixteen
//	             AVX2                  <= 96, b across, >= 32, plain     across            chain
//	             all but generic       any                               panels            chain
//	MXINT8       AMX, AVX-512          <= 12, >= 16, no spans            direct integers   blocks
//	             AVX2                  <= 96, >= 32, plain               words as needed   blocks
//	             all but generic       any                               panels            blocks
//	any          generic               any                               portable          chain
//
// Exceptions:
//
//   - Elements without a decoder (MXFP6, MXFP4) are decoded copies on every tier.
//   - MXINT8 multiplies as integers only if k is whole blocks. A ragged product decodes.
//   - On Intel CPUs with AVX-512 BF16 but without AMX, panels are those of FP32 and nothing goes
//     across: multiply-adds of FP32 are twice as fast there as VDPBF16PS, with the same bits.
//   - AVX-512 multiplies integers only with VBMI, VNNI and GFNI. AVX-512 with BF16 but without
//     these multiplies decoded copies.
//   - Few rows with MXINT8 in one operand, and no direct kernel for it, are decoded copies: the
//     order must not depend on the layout.
//   - Codes that do not decode to normal BF16 numbers exactly (codes_exact.go) are left to decoded
//     copies, and on AVX2 scales above 134 to panels.
//
// # Orders of summation
//
// Which order an element has depends on rows, k, formats and strides, never on columns. Each is
// fixed by a few lines of plain Go that tests hold all tiers to.
//
//	chain     One chain of fused multiply-adds along k, for BF16 of each pair (k, k+1) the second
//	          first, as VDPBF16PS does: chain in panels_order_test.go, for FP32 chainFP32
//	tiles     For every 32 elements one chain of the even ones and one of the odd ones, whose sum is
//	          added: tileChains in panels_order_test.go
//	sixteen   Sixteen chains, added up at the end: sixteenChains in fewrows_order_test.go
//	blocks    For every 32 elements the exact sum of integers, scaled, in one fused multiply-add:
//	          blockSums in integers_order_test.go
//	tree      Of spans: a balanced binary tree of sums in an order above: treeSum in spans_test.go
//
// Blocking does not show in the result; spans do, and are meant to. For BF16 all tiers but AMX
// agree bit for bit as long as the product is not direct and no operand, product or sum is
// subnormal. VDPBF16PS and AMX read subnormal operands as zero and flush subnormal sums, the others
// keep them.
//
// # Measurements
//
// They are in bench/results: kernels.txt and kernels-intel.txt for panels against the peak of a
// core, peers.txt against other libraries, and log.md, whose entries have these titles.
//
//	direct    "15. Weights along k (forward): cheaper ends of sums"
//	          "34. Forward products with few rows read weights in place"
//	          "35. Up to 8 rows by the in-place kernels of AVX2, without BF16"
//	across    "16. Weights across (gradients of data), in place"
//	          "33. Gradients of data with few rows read weights in place"
//	          "46. Multiply E4M3 codes across with the first row panel while they are decoded"
//	turned    "36. Read weights in place"
//	          "38. Decode, fetch and multiply few rows at the same time"
//	          "51. Go along k in chunks, 32 rows of weights at a time"
//	panels    "7. Read rows of a where they lie"
//	          "28. The microkernel does not wait for the lines that it writes"
//	integers  "25. Integers on AVX2 (VPMADDWD)"
//	          "26. Integers where AVX-512 has VNNI and VBMI but no BF16"
//	          "40. Few rows meet column panels that the first level of cache holds"
//	codes     "20. Decode MX codes by AVX2 on the way into panels"
//	          "42. Decode normal codes by linear maps of their bits"
//
// # Another architecture
//
// A tier of it is kernels_<arch>.go with its families (what microkernels, packers and decoders
// want: panels_family.go, fewrows_direct_family.go, fewrows_across.go, codes_decode.go),
// roundGroups, a recipe for the tier, and the assembly. calls.go has the structs that assembly
// reads, by the names in go_asm.h. kernels_other.go is for architectures without any.
package gemm
