//go:build !amd64 || purego

package nvfp4

import "unsafe"

const missing = "nvfp4: there are no kernels for this CPU; ask quant.Table first"

func amaxBlocksAVX512(out, x unsafe.Pointer, n int)                             { panic(missing) }
func amaxWordsAVX512(most, x unsafe.Pointer, n int)                             { panic(missing) }
func encodeRowsAVX512(codes, x, factors unsafe.Pointer, n int)                  { panic(missing) }
func encodeColsAVX512(codes, x, factors unsafe.Pointer, n int)                  { panic(missing) }
func encodeStochasticRowsAVX512(codes, x, factors, draws unsafe.Pointer, n int) { panic(missing) }
func encodeStochasticColsAVX512(codes, x, factors, draws unsafe.Pointer, n int) { panic(missing) }
func decodeRowsAVX512(dst, codes, scales unsafe.Pointer, n int)                 { panic(missing) }
func decodeColsAVX512(dst, codes, scales unsafe.Pointer, n int)                 { panic(missing) }
func hadamardAVX512(x unsafe.Pointer, stride, n, signs int)                     { panic(missing) }
func drawAVX512(out, key, counter unsafe.Pointer, n int)                        { panic(missing) }
func scalesAVX512(codes, factors, amax unsafe.Pointer, n int, encode, decode float32) (odd bool) {
	panic(missing)
}
