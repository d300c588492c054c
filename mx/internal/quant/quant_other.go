//go:build !amd64 || purego

package quant

import "unsafe"

const missing = "quant: there are no kernels for this CPU; ask Table first"

func scanAVX512(x unsafe.Pointer, stride int, rule *Rule, work *Work) (odd bool) { panic(missing) }
func drainAVX512()                                                               { panic(missing) }
func encodeRowsAVX512(t *Tile)                                                   { panic(missing) }
func encodeColsAVX512(t *Tile)                                                   { panic(missing) }
func encodeBothAVX512(t *Tile)                                                   { panic(missing) }
func encodeRowsStreamAVX512(t *Tile)                                             { panic(missing) }
func encodeColsStreamAVX512(t *Tile)                                             { panic(missing) }
func encodeBothStreamAVX512(t *Tile)                                             { panic(missing) }
func scanStripAVX2(s *Strip) (odd bool)                                          { panic(missing) }
func encodeStripRowsAVX2(s *Strip)                                               { panic(missing) }
func encodeStripColsAVX2(s *Strip)                                               { panic(missing) }
func encodeStripBothAVX2(s *Strip)                                               { panic(missing) }
