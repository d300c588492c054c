//go:build amd64 || arm64 || 386 || arm || loong64 || riscv64 || ppc64le || mips64le || mipsle || wasm

package checkpoint

// Float data as the bytes of a shard, without a copy: shards are little-endian, as are all machines
// in the build tag.

import "unsafe"

// bytesOf returns the memory of x as little-endian bytes.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*floatSize)
}
