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
	// quietPeriod is the time without a rotation after which a log is compressed. If a container fills files faster, its files
	// are removed before gzip could finish.
	quietPeriod = time.Second
	// chunkSize is the number of bytes compressed between two checks of the budget.
	chunkSize = 256 << 10
)

// errOverBudget means that a compressed file does not fit into the budget beside its original. The next rotation retries.
var errOverBudget = errors.New("no room in the budget")

// runCompressor compresses the rotated files of the log. It returns when no further compression is requested, or when ctx
// ends.
func (k *logKeeper) runCompressor(ctx context.Context) {
	for k.takeRequest() {
		if !k.awaitQuiet(ctx) {
			return
		}
		err := k.compressDue(ctx)
		if err == nil || errors.Is(err, errOverBudget) {
			continue
		}
		k.reportError(ctx, err, maxPollDelay)
		if sleep.For(ctx, maxPollDelay) != nil {
			return
		}
		k.requestCompression(ctx)
	}
}

// awaitQuiet waits until no compression was requested for quietPeriod. It returns false if ctx ends first.
func (k *logKeeper) awaitQuiet(ctx context.Context) bool {
	t := time.NewTimer(quietPeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.compressRequested:
			t.Reset(quietPeriod)
		case <-t.C:
			return true
		}
	}
}

// compressDue deletes stale files and compresses all files that need it, one at a time.
func (k *logKeeper) compressDue(ctx context.Context) error {
	select {
	case k.r.compressing <- struct{}{}:
		defer func() { <-k.r.compressing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for ctx.Err() == nil {
		// for each file, because the log may be rotated during a compression
		dir, err := readDir(k.dir)
		if err != nil {
			return err
		}
		names := make([]string, len(dir))
		for i, f := range dir {
			names[i] = f.Name
		}
		stale, kept := sortRotated(k.name, names)
		for _, name := range stale {
			if err := k.removeFile(name); err != nil {
				return err
			}
		}
		due := planCompressions(kept)
		if len(due) == 0 {
			return nil
		}
		if err := k.compressFile(ctx, due[0]); err != nil {
			return err
		}
	}
	return nil
}

// compressFile compresses the file step.File to the file step.To. It returns nil if a rotation removes the file during the
// compression.
func (k *logKeeper) compressFile(ctx context.Context, step Action) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.setCompressing(step.File, cancel)
	defer k.setCompressing("", nil)

	to := filepath.Join(k.dir, step.To)
	size, err := k.gzipFile(ctx, filepath.Join(k.dir, step.File), to)
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

func (k *logKeeper) setCompressing(name string, stop context.CancelFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.compressing, k.stopCompression = name, stop
}

// gzipFile compresses a file, removes the original, and returns the compressed size.
func (k *logKeeper) gzipFile(ctx context.Context, path, compressedPath string) (size int64, err error) {
	source, info, err := openNoFollow(path)
	if err != nil {
		return 0, err
	}
	defer source.Close()
	target, err := createReplacing(path+temporarySuffix, info.Mode().Perm())
	if err != nil {
		return 0, err
	}
	defer func() {
		target.Close() // a second Close after success
		if err != nil {
			os.Remove(target.Name())
		}
	}()
	z := gzip.NewWriter(target)
	if err := k.copyChunks(ctx, z, source); err != nil {
		return 0, err
	}
	if err := errors.Join(z.Close(), k.checkBudget(), target.Sync(), target.Close(), ctx.Err()); err != nil {
		return 0, err
	}
	// the compressed file appears only when it is complete and synced to disk
	if err := os.Rename(target.Name(), compressedPath); err != nil {
		return 0, err
	}
	if info, err = os.Lstat(compressedPath); err != nil {
		return 0, err
	}
	return info.Size(), notexist.Ignore(os.Remove(path))
}

// copyChunks copies r to w. After each chunk it calls checkBudget and stops on error.
func (k *logKeeper) copyChunks(ctx context.Context, w io.Writer, r io.Reader) error {
	for {
		_, err := io.CopyN(w, r, chunkSize)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err := errors.Join(err, ctx.Err(), k.checkBudget()); err != nil {
			return err
		}
	}
}

// checkBudget returns errOverBudget if the total size of the log's files exceeds Policy.MaxBytes.
func (k *logKeeper) checkBudget() error {
	dir, err := readDir(k.dir)
	var sum int64
	for _, f := range dir {
		if _, ok := parseName(k.name, f.Name); ok || f.Name == k.name {
			sum += f.Size
		}
	}
	if err == nil && sum > k.r.o.Policy.MaxBytes() {
		return errOverBudget
	}
	return err
}
