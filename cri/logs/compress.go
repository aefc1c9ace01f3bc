// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

const (
	// quiet is how long a log must not have been rotated before its files are compressed. A container that fills a
	// file sooner gets none of it: its files are removed before gzip could be done with them.
	quiet = time.Second
	// chunk is how much is compressed between two looks at the budget.
	chunk = 256 << 10
)

// errNoRoom says that a compressed file has no room beside its original. It is tried again after the next rotation.
var errNoRoom = errors.New("no room in the budget")

// pack compresses the rotated files of the log, until no more are due.
func (k *keeper) pack(ctx context.Context) {
	for k.soiled() {
		if !k.settled(ctx) {
			return
		}
		err := k.packAll(ctx)
		if err == nil || errors.Is(err, errNoRoom) {
			continue
		}
		k.report(ctx, err, longest)
		if sleep.For(ctx, longest) != nil {
			return
		}
		k.soil(ctx)
	}
}

// settled waits until the log has not been rotated for a while. It returns false when ctx ends.
func (k *keeper) settled(ctx context.Context) bool {
	t := time.NewTimer(quiet)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.dirty:
			t.Reset(quiet)
		case <-t.C:
			return true
		}
	}
}

// packAll removes what is left over and compresses what is due. It looks anew before each file, because a rotation may
// have come in between.
func (k *keeper) packAll(ctx context.Context) error {
	select {
	case k.r.packing <- struct{}{}:
		defer func() { <-k.r.packing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for ctx.Err() == nil {
		dir, err := readDir(k.dir)
		if err != nil {
			return err
		}
		names := make([]string, len(dir))
		for i, f := range dir {
			names[i] = f.Name
		}
		left, kept := tidy(k.name, names)
		for _, name := range left {
			if err := k.remove(name); err != nil {
				return err
			}
		}
		due := compressions(kept)
		if len(due) == 0 {
			return nil
		}
		if err := k.packOne(ctx, due[0]); err != nil {
			return err
		}
	}
	return nil
}

// packOne compresses one file, unless a rotation removes it meanwhile.
func (k *keeper) packOne(ctx context.Context, step Action) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.setPacking(step.File, cancel)
	defer k.setPacking("", nil)

	to := filepath.Join(k.dir, step.To)
	size, err := k.compress(ctx, filepath.Join(k.dir, step.File), to)
	if ctx.Err() != nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("compress log %s: %w", step.File, err)
	}
	if k.r.o.Hooks.FileCompressed != nil {
		k.r.o.Hooks.FileCompressed(k.log, to, size)
	}
	return nil
}

func (k *keeper) setPacking(name string, stop context.CancelFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.packing, k.stop = name, stop
}

// compress replaces a file with its compressed form, which has its name only when it is whole and on disk.
func (k *keeper) compress(ctx context.Context, from, to string) (size int64, err error) {
	source, info, err := openUnlinked(from)
	if err != nil {
		return 0, err
	}
	defer source.Close()
	target, err := createAnew(from+temporary, info.Mode().Perm())
	if err != nil {
		return 0, err
	}
	defer func() {
		target.Close() // closed twice where all went well
		if err != nil {
			os.Remove(target.Name())
		}
	}()
	z := gzip.NewWriter(target)
	if err := k.squeeze(ctx, z, source); err != nil {
		return 0, err
	}
	if err := errors.Join(z.Close(), k.room(), target.Sync(), target.Close(), ctx.Err()); err != nil {
		return 0, err
	}
	if err := os.Rename(target.Name(), to); err != nil {
		return 0, err
	}
	if info, err = os.Lstat(to); err != nil {
		return 0, err
	}
	return info.Size(), notexist.Ignore(os.Remove(from))
}

// squeeze copies chunk by chunk, as long as there is room.
func (k *keeper) squeeze(ctx context.Context, w io.Writer, r io.Reader) error {
	for {
		_, err := io.CopyN(w, r, chunk)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err := errors.Join(err, ctx.Err(), k.room()); err != nil {
			return err
		}
	}
}

// room returns errNoRoom when the files of the log are larger than the budget.
func (k *keeper) room() error {
	dir, err := readDir(k.dir)
	var sum int64
	for _, f := range dir {
		if _, ok := parseName(k.name, f.Name); ok || f.Name == k.name {
			sum += f.Size
		}
	}
	if err == nil && sum > k.r.o.Policy.MaxBytes() {
		return errNoRoom
	}
	return err
}
