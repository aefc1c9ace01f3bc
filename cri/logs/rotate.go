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

// rotateLog executes the steps that Policy.Plan returns for the files of the log, except compressions. Compressions take
// long and run in the compressing goroutine.
func (k *logKeeper) rotateLog(ctx context.Context) error {
	select {
	case k.r.rotationSlots <- struct{}{}:
		defer func() { <-k.r.rotationSlots }()
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
			err = k.removeFile(step.File)
		case OpRename:
			renamed = filepath.Join(k.dir, step.To)
			err = os.Rename(k.log.Path, renamed)
		case OpReopen:
			err = k.reopenLog(ctx, renamed)
		}
		if err != nil {
			return err
		}
	}
	k.requestCompression(ctx)
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

// readDir returns the names and sizes of the regular files in dir.
func readDir(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := make([]File, 0, len(entries))
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // removed since the listing
		}
		if info.Mode().IsRegular() {
			files = append(files, File{e.Name(), info.Size()})
		}
	}
	return files, nil
}

// removeFile deletes a rotated file. If the file is being compressed, it cancels the compression first.
func (k *logKeeper) removeFile(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch name {
	case k.compressing:
		k.stopCompression()
	case k.compressing + temporarySuffix:
		return nil // being written
	}
	return notexist.Ignore(os.Remove(filepath.Join(k.dir, name)))
}

// reopenLog makes the runtime reopen the log, whose file was renamed to renamedPath, or undoes the rename.
func (k *logKeeper) reopenLog(ctx context.Context, renamedPath string) error {
	call, cancel := context.WithTimeout(ctx, k.r.o.ReopenTimeout)
	defer cancel()
	err := k.r.runtime.ReopenContainerLog(call, k.log.ContainerID)
	if err == nil || renamedPath == "" { // there was no file
		return err
	}
	// After a lost or late response the runtime may have reopened the log. Rename must not overwrite the new file.
	if _, missing := os.Lstat(k.log.Path); errors.Is(missing, fs.ErrNotExist) {
		return errors.Join(err, os.Rename(renamedPath, k.log.Path))
	}
	k.r.o.Logger.Warn("log was reopened in spite of an error", append(k.log.logAttrs(), "error", err)...)
	return nil
}
