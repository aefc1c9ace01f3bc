// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/seed81659283/nodeagent/internal/notexist"
)

// rotate does what the policy plans, but the compressions: they take long, and must not delay the next rotation.
func (k *keeper) rotate(ctx context.Context) error {
	select {
	case k.r.rotating <- struct{}{}:
		defer func() { <-k.r.rotating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	dir, err := readDir(k.dir)
	if err != nil {
		return err
	}
	renamed := ""
	for _, step := range k.r.o.Policy.Plan(k.name, dir, time.Now()) {
		switch step.Op {
		case OpRemove:
			err = k.remove(step.File)
		case OpRename:
			renamed = filepath.Join(k.dir, step.To)
			err = os.Rename(k.log.Path, renamed)
		case OpReopen:
			err = k.reopen(ctx, renamed)
		}
		if err != nil {
			return err
		}
	}
	k.soil(ctx)
	if renamed == "" {
		return nil
	}
	if k.r.o.Hooks.LogRotated != nil {
		if info, err := os.Lstat(renamed); err == nil {
			k.r.o.Hooks.LogRotated(k.log, renamed, info.Size())
		}
	}
	return nil
}

// readDir returns the regular files of a directory.
func readDir(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := make([]File, 0, len(entries))
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // removed since
		}
		if info.Mode().IsRegular() {
			files = append(files, File{e.Name(), info.Size()})
		}
	}
	return files, nil
}

// remove deletes a file of the log. What is being compressed is given up first.
func (k *keeper) remove(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch name {
	case k.packing:
		k.stop()
	case k.packing + temporary:
		return nil // in use
	}
	return notexist.Ignore(os.Remove(filepath.Join(k.dir, name)))
}

// reopen has the runtime open the log anew. Where that fails, the container still writes to the renamed file, and so
// it gets its name back.
func (k *keeper) reopen(ctx context.Context, renamed string) error {
	call, cancel := context.WithTimeout(ctx, k.r.o.ReopenTimeout)
	defer cancel()
	err := k.r.runtime.ReopenContainerLog(call, k.log.ContainerID)
	if err == nil || renamed == "" {
		return err
	}
	// An answer that is lost or late does not mean that nothing was done. A new file is not written over.
	if _, missing := os.Lstat(k.log.Path); errors.Is(missing, fs.ErrNotExist) {
		return errors.Join(err, os.Rename(renamed, k.log.Path))
	}
	k.r.o.Logger.Warn("log was reopened in spite of an error", append(k.log.attrs(), "error", err)...)
	return nil
}
