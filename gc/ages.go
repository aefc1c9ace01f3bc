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
	maxAges     = 16 << 20 // bytes of the file that are read: 100,000 images have fewer
	maxID       = 1 << 10  // bytes of the ID of an image
)

// age is what is remembered of an image.
type age struct {
	FirstDetected time.Time `json:"firstDetected"`
	LastUsed      time.Time `json:"lastUsed,omitzero"`
}

// ages are those of all images, by ID, in a file where there is one.
type ages struct {
	path  string // empty: they are forgotten when the program ends
	known map[string]age
}

// agesFile is the file.
type agesFile struct {
	Version int            `json:"version"`
	Images  map[string]age `json:"images"`
}

// load reads the file. After an error nothing is known: each image begins to age anew. What is not from the past, as
// a clock that was wrong has written it, is from now.
func (a *ages) load(now time.Time) error {
	a.known = map[string]age{}
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
			a.known[id] = age{notAfter(read.FirstDetected, now), notAfter(read.LastUsed, now)}
		}
	}
	return nil
}

// decodeAges reads the content of the file.
func decodeAges(data []byte) (file agesFile, err error) {
	if err := json.Unmarshal(data, &file); err != nil {
		return agesFile{}, err
	}
	if file.Version != agesVersion {
		return agesFile{}, fmt.Errorf("version %d is not %d", file.Version, agesVersion)
	}
	return file, nil
}

func notAfter(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}

// detect takes note of the images that there are: began is when they were asked for, and now is the time. It fills in their ages
// and forgets all other images. Source: detectImages in pkg/kubelet/images/image_gc_manager.go.
func (a *ages) detect(images []Image, began, now time.Time) {
	known := make(map[string]age, len(images))
	for i := range images {
		image := &images[i]
		if image.ID == "" {
			continue
		}
		is, ok := a.known[image.ID]
		if !ok {
			is.FirstDetected = began
		}
		if image.Used {
			is.LastUsed = now
		}
		known[image.ID] = is
		image.FirstDetected, image.LastUsed = is.FirstDetected, is.LastUsed
	}
	a.known = known
}

// forget forgets an image that was removed: when it comes back it is a new one.
func (a *ages) forget(id string) { delete(a.known, id) }

// save writes the file. A machine that loses power may lose what was written last.
func (a *ages) save() error {
	if a.path == "" {
		return nil
	}
	data, err := json.Marshal(agesFile{Version: agesVersion, Images: a.known})
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
