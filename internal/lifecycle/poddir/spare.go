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

// Room that is kept for records: files of zeros in a directory below the root. On a disk that is full to the last block, or has no
// inode left, one of them becomes the record of a pod: what is written over blocks that are there needs no new ones.
const (
	spareName  = ".spare"
	spareFiles = 16
	spareSize  = 32 << 10 // bytes; the record of an evicted pod has 2 to 10 KiB
)

func spareFile(root string, i int) string {
	return filepath.Join(root, spareName, strconv.Itoa(i))
}

// spareKept reports whether spare files are kept below a root: whoever claims it has them.
func spareKept(root string) bool {
	info, err := os.Lstat(filepath.Join(root, spareName))
	return err == nil && info.IsDir()
}

// fillSpare makes the spare files that are missing, as far as there is room.
func fillSpare(root string) error {
	if err := os.MkdirAll(filepath.Join(root, spareName), 0o700); err != nil {
		return err
	}
	for i := range spareFiles {
		path := spareFile(root, i)
		info, err := os.Lstat(path)
		if err == nil && info.Mode().IsRegular() && info.Size() == spareSize {
			continue
		}
		if err == nil { // of an agent that was killed while it wrote
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := writeSpare(path); err != nil {
			return err
		}
	}
	return nil
}

// writeSpare makes one spare file, whole or not at all.
func writeSpare(path string) error {
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

// writeInto makes data the content of the file at path, with the blocks of a spare file of the root. It is on the disk then.
func writeInto(root, path string, data []byte) error {
	if len(data) > spareSize {
		return fmt.Errorf("%s: a record of %d bytes has no room in a spare file of %d", path, len(data), spareSize)
	}
	dir, name := filepath.Split(path)
	temporary := filepath.Join(dir, "."+name+".0.tmp") // which atomicfile.Clean removes after a kill
	taken := false
	for i := 0; i < spareFiles && !taken; i++ {
		taken = os.Rename(spareFile(root, i), temporary) == nil // one that is taken is nobody else's
	}
	if !taken {
		return fmt.Errorf("%s: no spare file is left", path)
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY, 0)
	if err == nil {
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
