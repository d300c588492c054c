package tensorboard

// The framing of event files, TFRecord: length, checksum of the length, data, checksum of the data.

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum of data, rotated and offset as the format requires, so that checksums
// of checksums are sound.
func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// appendFrame appends one record to file.
func appendFrame(file, data []byte) []byte {
	head := len(file)
	file = binary.LittleEndian.AppendUint64(file, uint64(len(data)))
	file = binary.LittleEndian.AppendUint32(file, masked(file[head:]))
	file = append(file, data...)
	return binary.LittleEndian.AppendUint32(file, masked(data))
}
