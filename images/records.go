// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/notexist"
)

// filePrefix begins the names of records; the SHA-256 of what they are about follows.
// Source: pkg/kubelet/images/pullmanager/fs_pullrecords.go.
const filePrefix = "sha256-"

// records are the files about pulled images. Nil are none: nothing is kept. No lock is held while a file is on its way
// to the disk but the one of those who change records, so that pods whose images are there do not wait for that.
type records struct {
	pulling string // directory of intents
	pulled  string // directory of pulledRecords

	changing sync.Mutex // held while a record is read, changed and written

	mu       sync.Mutex     // guards inFlight, and the removal of intents
	inFlight map[string]int // pulls by their image
}

func newRecords(dir string) *records {
	if dir == "" {
		return nil
	}
	return &records{
		pulling:  filepath.Join(dir, "pulling"),
		pulled:   filepath.Join(dir, "pulled"),
		inFlight: make(map[string]int),
	}
}

func recordFile(dir, about string) string {
	return filepath.Join(dir, fmt.Sprintf("%s%x", filePrefix, sha256.Sum256([]byte(about))))
}

// begin takes note that a pull begins. When it returns nil, end or succeed follows.
func (s *records) begin(image string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.inFlight[image]++
	s.mu.Unlock()
	err := write(s.pulling, image, intent{typeMeta: typeMeta{intentKind, recordVersion}, Image: image})
	if err != nil {
		return errors.Join(err, s.end(image))
	}
	return nil
}

// end takes note that a pull is over. The intent of an image goes with its last pull.
func (s *records) end(image string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[image] > 1 {
		s.inFlight[image]--
		return nil
	}
	delete(s.inFlight, image)
	return remove(recordFile(s.pulling, image))
}

// succeed takes note of a pull that worked. When that fails the intent stays, so that the image is not taken for one
// that has always been there.
func (s *records) succeed(image, short, id string, c recordedCredentials, now time.Time) error {
	if s == nil {
		return nil
	}
	if err := s.learn(short, id, c, now); err != nil {
		return err
	}
	return s.end(image)
}

// learn writes a record if it says more than the one that is there. One that cannot be read is replaced.
func (s *records) learn(short, id string, c recordedCredentials, now time.Time) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	r, found, err := s.read(id)
	before := r.CredentialMapping[short]
	after := before.merge(c)
	if err == nil && found && after.equal(before) {
		return nil
	}
	if r.CredentialMapping == nil {
		r.CredentialMapping = make(map[string]recordedCredentials)
	}
	if !after.equal(recordedCredentials{}) {
		r.CredentialMapping[short] = after
	}
	r.typeMeta = typeMeta{pulledKind, recordVersion}
	r.ImageRef = id
	r.LastUpdatedTime = now.UTC().Truncate(time.Second)
	return write(s.pulled, id, r)
}

// read returns the record of an image.
func (s *records) read(id string) (r pulledRecord, found bool, err error) {
	path := recordFile(s.pulled, id)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	if r, err = decodePulled(data); err != nil {
		return r, false, fmt.Errorf("read %s: %w", path, err)
	}
	if r.ImageRef != id {
		return pulledRecord{}, false, nil
	}
	return r, true, nil
}

// has reports whether there is a record of an image. What it says does not matter: an agent has pulled the image.
func (s *records) has(id string) bool {
	if s == nil {
		return false
	}
	info, err := os.Lstat(recordFile(s.pulled, id))
	return err == nil && info.Mode().IsRegular()
}

// lookup returns what an image was pulled with under a name, and whether an agent has pulled it at all. It looks for
// the intent first: a pull that ends in between has its record by then.
func (s *records) lookup(image, short, id string) (c recordedCredentials, pulled bool, err error) {
	begun, intentErr := s.begun(image)
	r, found, err := s.read(id)
	if err != nil || found {
		return r.CredentialMapping[short], found, err
	}
	return c, begun, intentErr
}

// begun reports whether a pull of an image has begun and not ended, in this agent or in one before it.
func (s *records) begun(image string) (bool, error) {
	path := recordFile(s.pulling, image)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	i, err := decodeIntent(data)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return i.Image == image, nil
}

// each calls f with the content of every record in a directory. The error joins those of f.
func each(dir string, f func(path string, data []byte) error) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() || !strings.HasPrefix(e.Name(), filePrefix) || strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(path)
		if err == nil {
			err = f(path, data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

func write(dir, about string, object any) error {
	data, err := encode(object)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteFile(recordFile(dir, about), data, 0o600)
}

// remove removes a file, if it is there.
func remove(path string) error {
	if err := notexist.Ignore(os.Remove(path)); err != nil {
		return err
	}
	return nil
}
