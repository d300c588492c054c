//go:build linux

package chaos

// Damage to the files of a checkpoint.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"spmoe/launcher/checkpoint"
)

// damage is a way to damage the files of a checkpoint.
type damage struct {
	name  string
	apply func(rng *rand.Rand, shards []string, manifest string) error
}

func damages() []damage {
	return []damage{
		{"bit of a shard", func(rng *rand.Rand, shards []string, _ string) error { return flipBit(rng, pick(rng, shards)) }},
		{"bit of the manifest", func(rng *rand.Rand, _ []string, manifest string) error { return flipBit(rng, manifest) }},
		{"torn shard", func(rng *rand.Rand, shards []string, _ string) error { return truncate(rng, pick(rng, shards)) }},
		{"torn manifest", func(rng *rand.Rand, _ []string, manifest string) error { return truncate(rng, manifest) }},
		{"missing shard", func(rng *rand.Rand, shards []string, _ string) error { return os.Remove(pick(rng, shards)) }},
		{"stale shard", func(rng *rand.Rand, shards []string, _ string) error { return replace(rng, shards) }},
	}
}

func pick(rng *rand.Rand, files []string) string { return files[rng.IntN(len(files))] }

// flipBit inverts one bit of a file.
func flipBit(rng *rand.Rand, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	bit := rng.IntN(8 * len(data))
	data[bit/8] ^= 1 << (bit % 8)
	return os.WriteFile(path, data, 0o666)
}

// truncate cuts a file off at a random length.
func truncate(rng *rand.Rand, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, rng.Int64N(info.Size()))
}

// replace overwrites one rank's shard with another's. A single shard is emptied.
func replace(rng *rand.Rand, shards []string) error {
	i := rng.IntN(len(shards))
	if len(shards) == 1 {
		return os.Truncate(shards[i], 0)
	}
	data, err := os.ReadFile(shards[(i+1)%len(shards)])
	if err != nil {
		return err
	}
	return os.WriteFile(shards[i], data, 0o666)
}

// waitForFile returns when a file exists, or after a minute.
func waitForFile(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// damageNewest damages the newest checkpoint of a run.
func (s *session) damageNewest(d damage, out string) error {
	newest, err := checkpoint.Latest(out)
	if err != nil {
		return err
	}
	shards, err := filepath.Glob(filepath.Join(newest, "*.safetensors"))
	if err != nil {
		return err
	}
	slices.Sort(shards)
	if len(shards) == 0 {
		return fmt.Errorf("%s has no shards", newest)
	}
	return d.apply(s.rng, shards, filepath.Join(newest, "manifest.json"))
}
