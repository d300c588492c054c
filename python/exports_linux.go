package main

// The exported functions. Each returns NULL, or a message that the caller frees with spmoe_free.
// Arrays are described by structures that package calls documents.

/*
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	"unsafe"

	"spmoe/launcher/system"
	"spmoe/python/calls"
)

// message returns an error as a C string; NULL: there is none.
func message(err error) *C.char {
	if err == nil {
		return nil
	}
	return C.CString(err.Error())
}

// text stores a result of text as a C string.
func text(to unsafe.Pointer, f func() ([]byte, error)) *C.char {
	return message(calls.Guarded(func() error {
		result, err := f()
		if err == nil {
			*(**C.char)(to) = C.CString(string(result))
		}
		return err
	}))
}

func array(p unsafe.Pointer) *calls.Array         { return (*calls.Array)(p) }
func quantized(p unsafe.Pointer) *calls.Quantized { return (*calls.Quantized)(p) }

//export spmoe_free
func spmoe_free(p unsafe.Pointer) { C.free(p) }

//export spmoe_available
func spmoe_available() int64 { return system.ReadMemory().Available }

//export spmoe_about
func spmoe_about(to unsafe.Pointer) *C.char { return text(to, calls.About) }

//export spmoe_layout
func spmoe_layout(q, to unsafe.Pointer) *C.char {
	return message(calls.Layout(quantized(q), (*[6]int64)(to)))
}

//export spmoe_quantize
func spmoe_quantize(q, x unsafe.Pointer, mode *C.char, stochastic int32, seed, step uint32, threads int32) *C.char {
	defer useDefault()()
	return message(calls.Quantize(quantized(q), array(x), C.GoString(mode), stochastic != 0, seed, step, threads))
}

//export spmoe_dequantize
func spmoe_dequantize(out, q unsafe.Pointer, threads int32) *C.char {
	defer useDefault()()
	return message(calls.Dequantize(array(out), quantized(q), threads))
}

//export spmoe_cast
func spmoe_cast(out, x unsafe.Pointer, threads int32) *C.char {
	defer useDefault()()
	return message(calls.Cast(array(out), array(x), threads))
}

//export spmoe_matmul
func spmoe_matmul(out, a, b, groups unsafe.Pointer, sum *C.char, parts, accumulate, threads int32) *C.char {
	defer useDefault()()
	return message(calls.MatMul(array(out), array(a), array(b), groups, C.GoString(sum), int(parts), accumulate != 0, threads))
}

//export spmoe_matmul_quantized
func spmoe_matmul_quantized(out, a, b, groups unsafe.Pointer, n int64, sum *C.char, threads int32) *C.char {
	defer useDefault()()
	return message(calls.MatMulQuantized(array(out), quantized(a), quantized(b), groups, n, C.GoString(sum), threads))
}

//export spmoe_linear
func spmoe_linear(y, dx, dw, x, w, dy, groups unsafe.Pointer, recipe, sum *C.char, seed, step uint32, threads int32) *C.char {
	defer useDefault()()
	return message(calls.Linear(array(y), array(dx), array(dw), array(x), array(w), array(dy), groups,
		C.GoString(recipe), C.GoString(sum), seed, step, threads))
}

//export spmoe_schedule
func spmoe_schedule(name *C.char, ranks, stagesPerRank, microbatches int64, to unsafe.Pointer) *C.char {
	return text(to, func() ([]byte, error) {
		return calls.Schedule(C.GoString(name), int(ranks), int(stagesPerRank), int(microbatches))
	})
}

//export spmoe_check
func spmoe_check(path *C.char, to unsafe.Pointer) *C.char {
	defer useDefault()()
	return text(to, func() ([]byte, error) { return calls.Check(C.GoString(path)) })
}
