// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

const (
	agesVersion = 1
	maxAges     = 16 << 20 // maximum size of the file in bytes; 100,000 images need less
	maxID       = 1 << 10  // maximum length of an image ID in bytes
)

// imageAge records when an image was first detected on the node and when a container last used it.
type imageAge struct {
	FirstDetected time.Time `json:"firstDetected"`
	LastUsed      time.Time `json:"lastUsed,omitzero"`
}

// imageAges holds the ages of all images by ID. If path is set, they are stored in that file.
type imageAges struct {
	path   string // empty: not persisted
	images map[string]imageAge
}

// agesFile is the JSON format of the file.
type agesFile struct {
	Version int                 `json:"version"`
	Images  map[string]imageAge `json:"images"`
}

// readFile reads the ages of all images from the file. After an error no image has an age.
func (a *imageAges) readFile(now time.Time) error {
	a.images = map[string]imageAge{}
	if a.path == "" {
		return nil
	}
	if err := atomicfile.Clean(a.path); err != nil {
		return fmt.Errorf("ages of images: %w", err)
	}
	data, err := plainfile.Read(a.path, maxAges)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var file agesFile
	if err == nil {
		file, err = decodeAges(data)
	}
	if err != nil {
		return fmt.Errorf("ages of images: %w: all begin anew", err)
	}
	for id, read := range file.Images {
		if id != "" && len(id) <= maxID {
			// A time in the future was written with a wrong clock.
			a.images[id] = imageAge{earlierOf(read.FirstDetected, now), earlierOf(read.LastUsed, now)}
		}
	}
	return nil
}

// decodeAges parses the content of the ages file. It returns an error if the file has another format version.
func decodeAges(data []byte) (file agesFile, err error) {
	if err := json.Unmarshal(data, &file); err != nil {
		return agesFile{}, err
	}
	if file.Version != agesVersion {
		return agesFile{}, fmt.Errorf("version %d is not %d", file.Version, agesVersion)
	}
	return file, nil
}

func earlierOf(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}

// update sets FirstDetected and LastUsed of each image. Source: detectImages in pkg/kubelet/images/image_gc_manager.go.
func (a *imageAges) update(images []Image, listStart, now time.Time) {
	known := make(map[string]imageAge, len(images))
	for i := range images {
		image := &images[i]
		if image.ID == "" {
			continue
		}
		is, ok := a.images[image.ID]
		if !ok {
			is.FirstDetected = listStart
		}
		if image.Used {
			is.LastUsed = now
		}
		known[image.ID] = is
		image.FirstDetected, image.LastUsed = is.FirstDetected, is.LastUsed
	}
	a.images = known
}

// removeImage drops the age of an image that was removed. If the image is pulled again, its age begins anew.
func (a *imageAges) removeImage(id string) { delete(a.images, id) }

// writeFile writes the ages to their file, which it replaces atomically. After a power failure, the file may have the
// previous content.
func (a *imageAges) writeFile() error {
	if a.path == "" {
		return nil
	}
	data, err := json.Marshal(agesFile{Version: agesVersion, Images: a.images})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(a.path), 0o750)
	}
	if err == nil {
		err = atomicfile.Replace(a.path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("ages of images: %w", err)
	}
	return nil
}
