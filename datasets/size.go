package datasets

// The memory that the data of a run takes, for estimates.

// builtinBytes is the approximate size of the built-in corpus, of Go 1.26 or inside the program.
const builtinBytes = 26 << 20

// TextBytes returns the approximate bytes of memory that [Load] leaves in use for data at paths:
// the bytes of text. Ids of one byte share the memory of the text. Larger ids take
// four bytes each, and there is about one per four bytes of text. Token files are mapped, so their
// pages are the system's. Packed files and files of rows count as large as they are on disk. Paths
// that cannot be read count nothing.
func TextBytes(paths []string) (bytes int64) {
	if len(paths) == 0 {
		return builtinBytes
	}
	_ = eachSource(paths, Options{}, func(s source) error {
		for _, f := range s.files {
			if f.kind != arrowData {
				bytes += f.size
			}
		}
		return nil
	})
	return bytes
}
