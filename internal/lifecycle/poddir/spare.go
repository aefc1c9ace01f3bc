// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
)

// Spare files reserve disk space for records: files of zeros in a directory of the root. On a disk without free blocks or inodes,
// a spare file becomes the record of a pod, because overwriting existing blocks needs no new ones.
const (
	spareName  = ".spare"
	spareFiles = 16
	spareSize  = 32 << 10 // bytes; the record of an evicted pod has 2 to 10 KiB
)

func sparePath(root string, i int) string {
	return filepath.Join(root, spareName, strconv.Itoa(i))
}

// hasSpares reports whether root contains the directory for spare files, which LockRoot creates.
func hasSpares(root string) bool {
	info, err := os.Lstat(filepath.Join(root, spareName))
	return err == nil && info.IsDir()
}

// createSpares creates the spare files that are missing in root. It fails if the disk is full.
func createSpares(root string) error {
	if err := os.MkdirAll(filepath.Join(root, spareName), 0o700); err != nil {
		return err
	}
	for i := range spareFiles {
		path := sparePath(root, i)
		info, err := os.Lstat(path)
		if err == nil && info.Mode().IsRegular() && info.Size() == spareSize {
			continue
		}
		if err == nil { // incomplete, from an agent that was killed
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := createSpare(path); err != nil {
			return err
		}
	}
	return nil
}

// createSpare creates a spare file at path. If it fails, it removes the partial file.
func createSpare(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, spareSize))
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// writeToSpare writes data to a spare file of root, syncs it to disk and renames it to path.
func writeToSpare(root, path string, data []byte) error {
	if len(data) > spareSize {
		return fmt.Errorf("%s: a record of %d bytes does not fit into a spare file of %d bytes", path, len(data), spareSize)
	}
	dir, name := filepath.Split(path)
	temporary := filepath.Join(dir, "."+name+".0.tmp") // atomicfile.Clean removes it if the agent is killed
	taken := false
	for i := 0; i < spareFiles && !taken; i++ {
		taken = os.Rename(sparePath(root, i), temporary) == nil // rename succeeds for one caller only
	}
	if !taken {
		return fmt.Errorf("%s: no spare file is left", path)
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY, 0)
	if err == nil {
		// This works on a full disk: the file already has its blocks.
		_, err = f.Write(data)
		err = errors.Join(err, f.Truncate(int64(len(data))), f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return atomicfile.SyncDir(dir)
}
