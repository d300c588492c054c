package trainer

// A scale for the bits per byte of a run: what gzip makes of the same text.

import (
	"compress/gzip"

	"spmoe/datasets"
)

// scaleBytes is the maximum amount of text that gzip compresses for the scale.
const scaleBytes = 1 << 20

// gzipBits returns the bits per byte of the validation text in a gzip file. Of a long text it takes
// windows that are spread over it.
func (j *Job) gzipBits() (float64, error) {
	w, err := datasets.NewWindows(j.heldOut, datasets.WindowsConfig{Seq: j.cfg.Seq, Count: max(scaleBytes/j.cfg.Seq, 1), Ranks: 1})
	if err != nil {
		return 0, err
	}
	var out counter
	to, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return 0, err
	}
	bytes, row := 0, make([]int32, j.cfg.Seq+1)
	for range w.All(row) {
		text := j.tokenizer.Decode(row[1:])
		to.Write(text) // a counter has no errors
		if bytes += len(text); bytes >= scaleBytes {
			break
		}
	}
	to.Close()
	return 8 * float64(out) / float64(max(bytes, 1)), nil
}

// counter counts the bytes that are written to it.
type counter int

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}
