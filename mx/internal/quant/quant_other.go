//go:build !amd64 || purego

package quant

import "unsafe"

const missing = "quant: there are no kernels for this CPU; ask Table first"

func narrowAVX512(dst, src unsafe.Pointer, stride int, ahead unsafe.Pointer)          { panic(missing) }
func scanAVX512(x unsafe.Pointer, stride int, rule *Rule, work *Work) (odd bool)      { panic(missing) }
func drainAVX512()                                                                    { panic(missing) }
func encodeRowsAVX512(t *Tile)                                                        { panic(missing) }
func encodeColsAVX512(t *Tile)                                                        { panic(missing) }
func encodeBothAVX512(t *Tile)                                                        { panic(missing) }
func encodeRowsStreamAVX512(t *Tile)                                                  { panic(missing) }
func encodeColsStreamAVX512(t *Tile)                                                  { panic(missing) }
func encodeBothStreamAVX512(t *Tile)                                                  { panic(missing) }
func encodeStripRowsAVX2(s *Strip)                                                    { panic(missing) }
func encodeStripColsAVX2(s *Strip)                                                    { panic(missing) }
func encodeStripBothAVX2(s *Strip)                                                    { panic(missing) }
func scanStripAVX2(amax, x unsafe.Pointer, stride, n int) (odd bool)                  { panic(missing) }
func amaxRunsAVX512(amax, x unsafe.Pointer, n int)                                    { panic(missing) }
func amaxColumnsAVX512(amax, x unsafe.Pointer, stride, rows, n int)                   { panic(missing) }
func encodeRunsAVX512(codes, x, factors unsafe.Pointer, n int)                        { panic(missing) }
func encodeColumnsAVX512(codes, x, factors unsafe.Pointer, step, stride, rows, n int) { panic(missing) }
func decodeRunsAVX512(dst, codes, scales unsafe.Pointer, n int)                       { panic(missing) }
func decodeColumnsAVX512(dst, codes, scales unsafe.Pointer, n int)                    { panic(missing) }
func laneScales(scales, amax unsafe.Pointer, n int, g *Grid) (odd bool)               { panic(missing) }
